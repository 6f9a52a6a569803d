#include "codegen/triton/attention.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>
#include <set>

#include "base/hash.h"
#include "codegen/triton/helpers.h"
#include "codegen/triton/point.h"
#include "codegen/triton/printer.h"

namespace braze::codegen::triton {
namespace {

constexpr const char* kLog2E = "1.4426950408889634";

struct Tile {
  int rows, columns, warps, stages;  // queries, keys
};

// Of those tried on an H200 with causal masks over 4096 tokens, the fastest: for head dimensions of 64 and 128.
Tile forward_tile(const AttentionKernel& k) {
  int dim = std::max(k.key_dim, k.value_dim);
  if (k.dtype == DType::F32) return dim <= 128 ? Tile{64, 32, 4, 2} : Tile{32, 16, 4, 2};
  if (dim <= 64) return {128, 64, 4, 3};
  if (dim <= 128) return {128, 128, 8, 3};
  return {64, 32, 4, 2};
}
Tile query_tile(const AttentionKernel& k) {
  int dim = std::max(k.key_dim, k.value_dim);
  if (k.dtype == DType::F32) return dim <= 64 ? Tile{64, 32, 4, 2} : Tile{32, 32, 4, 1};
  if (dim <= 64) return {64, 64, 4, 3};
  if (dim <= 128) return {64, 64, 4, 2};
  return {32, 32, 4, 1};
}
Tile key_tile(const AttentionKernel& k) {
  int dim = std::max(k.key_dim, k.value_dim);
  if (k.dtype == DType::F32) return dim <= 64 ? Tile{32, 64, 4, 2} : Tile{32, 32, 4, 1};
  if (dim <= 64) return {128, 64, 4, 2};
  if (dim <= 128) return {64, 64, 4, 2};
  return {32, 32, 4, 1};
}

int padded(int dim) { return std::max(16, static_cast<int>(std::bit_ceil(static_cast<unsigned>(dim)))); }

// The largest power of two up to `wanted` that divides a block of the lists.
int dividing(int wanted, int64_t block) {
  while (wanted > 16 && block % wanted) wanted /= 2;
  if (block % wanted) throw Inexpressible("blocks of a BlockMask that are no multiples of 16");
  return wanted;
}

class Writer {
 public:
  Writer(const AttentionKernel& k, const ScorePrograms* scores, Tile tile) : k_(k), scores_(scores), tile_(tile) {
    if (k.lists) {
      tile_.rows = dividing(tile_.rows, k.q_block);
      tile_.columns = dividing(tile_.columns, k.kv_block);
    }
    out_.source.sm = k.sm;
    out_.source.warps = tile_.warps;
    out_.source.stages = tile_.stages;
    out_.source.contract = true;
  }

  AttentionSource forward();
  AttentionSource delta(bool grad_lse);
  AttentionSource backward_query();
  AttentionSource backward_key();

 private:
  void gradient(const std::string& product, const std::string& toward, const std::string& per_query, bool masked,
                const std::function<void()>& between);
  // lse and delta of the queries; without a key, and beyond the end, all weights are zero.
  void statistics(const std::string& rows) {
    line("lse = " + statistic_at("LSE", rows, "float(\"inf\")"));
    line("lse = tl.where(lse == float(\"-inf\"), float(\"inf\"), lse)");
    line("delta = " + statistic_at("DELTA", rows, "0.0"));
  }
  void line(const std::string& s) { body_ += s.empty() ? "\n" : std::string(4 * indent_, ' ') + s + "\n"; }

  // ---- parameters ----
  std::string parameter(const std::string& name, const std::string& type, Role role, bool aligned = false,
                        int index = 0, Role of = Role::Query) {
    out_.source.arguments.emplace_back(name, type);
    out_.source.aligned.push_back(aligned);
    out_.roles.push_back({static_cast<int>(role), index, static_cast<int>(of)});
    return name;
  }
  void tensor(const std::string& name, Role role) { parameter(name, pointer_type(k_.dtype), role, k_.aligned); }
  void statistic(const std::string& name, Role role) { parameter(name, "*fp32", role); }
  // Strides of batches, heads and rows; elements of a row are neighbours.
  void strides(const std::string& name, Role of) {
    parameter(name + "_b", "i64", Role::Stride, k_.aligned, 0, of);
    parameter(name + "_h", "i64", Role::Stride, k_.aligned, 1, of);
    parameter(name + "_s", "i32", Role::Stride, k_.aligned, 2, of);
  }
  void common() {
    if (k_.lists) {
      parameter("num", "*i32", Role::Num);
      parameter("idx", "*i32", Role::Idx);
      if (k_.full_lists) {
        parameter("full_num", "*i32", Role::FullNum);
        parameter("full_idx", "*i32", Role::FullIdx);
      }
    }
    for (size_t i = 0; i < k_.operands.size(); ++i)
      parameter("x" + std::to_string(i), pointer_type(k_.operands[i]), Role::Operand, false, static_cast<int>(i));
    parameter("B", "i32", Role::Batch);
    parameter("H", "i32", Role::Heads);
    parameter("M", "i32", Role::Queries);
    parameter("N", "i32", Role::Keys);
    parameter("scale", "fp32", Role::Scale);
    if (k_.lists) {
      parameter("list_b", "i32", Role::ListBatch);
      parameter("list_h", "i32", Role::ListHead);
      parameter("columns", "i32", Role::ListColumns);
      if (k_.full_lists) parameter("full_columns", "i32", Role::FullColumns);
    }
    parameter("error", "*i32", Role::Error);
  }

  AttentionSource finish(int rows) {
    std::string text = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n",
                list;
    for (const Helper& h : kHelpers)
      if (helpers_.contains(h.name)) text += std::string("@triton.jit\n") + h.text + "\n\n";
    for (const auto& [name, type] : out_.source.arguments) list += (list.empty() ? "" : ", ") + name;
    // Drivers know kernels by their names: all that decides on the machine code is in it.
    Source& s = out_.source;
    std::string all = text + list + body_;
    for (const auto& [name, type] : s.arguments) all += type;
    for (bool a : s.aligned) all += a ? '1' : '0';
    Hasher first, second;
    second.add(1);
    for (Hasher* h : {&first, &second})
      h->add(all), h->add(s.warps), h->add(s.stages), h->add(s.sm), h->add(s.contract);
    char digits[40];
    std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(first.value()),
                  static_cast<unsigned long long>(second.value()));
    s.kernel = std::string("attention_") + digits;
    s.text = text + "@triton.jit\ndef " + s.kernel + "(" + list + "):\n" + body_;
    out_.rows = rows;
    return std::move(out_);
  }

  // ---- tiles of tensors ----
  // A tile [rows, dim] of a tensor at `base`; `columns`: transposed. `even`: all rows exist.
  std::string tile(const std::string& base, const std::string& rows, const std::string& stride,
                   const std::string& bound, bool even, int dim, const std::string& d, bool columns = false) const {
    std::string r = columns ? rows + "[None, :]" : rows + "[:, None]", c = columns ? d + "[:, None]" : d + "[None, :]";
    return base + " + " + r + " * " + stride + " + " + c + mask(r, bound, even, dim, c);
  }
  static std::string mask(const std::string& r, const std::string& bound, bool even, int dim, const std::string& c) {
    std::string m = even ? "" : "(" + r + " < " + bound + ")";
    if (padded(dim) != dim) m += (m.empty() ? "(" : " & (") + c + " < " + std::to_string(dim) + ")";
    return m.empty() ? "" : ", mask=" + m;
  }
  static std::string load(const std::string& place) {
    return "tl.load(" + place + (place.find("mask=") == std::string::npos ? ")" : ", other=0.0)");
  }
  void store(const std::string& place, const std::string& value) {
    size_t at = std::min(place.find(", mask="), place.size());
    line("tl.store(" + place.substr(0, at) + ", " + value + place.substr(at) + ")");
  }
  // Of a number per query; those beyond the end are `other`.
  std::string statistic_at(const std::string& base, const std::string& rows, const std::string& other) const {
    return "tl.load(" + base + " + (b * H + h) * M + " + rows +
           (k_.even_queries ? ")" : ", mask=" + rows + " < M, other=" + other + ")");
  }
  std::string dot(const std::string& a, const std::string& b, const std::string& c = "") const {
    std::string precision =
        k_.dtype == DType::F32 ? std::string(", input_precision=\"") + (k_.tf32 ? "tf32" : "ieee") + "\"" : "";
    return "tl.dot(" + a + ", " + b + (c.empty() ? "" : ", " + c) + precision + ")";
  }
  std::string type() const { return storage_type(k_.dtype); }

  // ---- functions of the scores ----
  std::string function(const loop::Program* program, const std::string& prefix) {
    PointNames names{{"b", "h", "qi", "ki"}, {"score", "ds"}, {}, prefix};
    for (size_t i = 0; i < k_.operands.size(); ++i) names.pointers.push_back("x" + std::to_string(i));
    PointText text = print_point(*program, scores_->sizes, names, k_.sm, helpers_);
    for (const std::string& s : text.lines) line(s);
    return text.result;
  }
  // What mask_mod and the ends of the tensors leave of the scores; empty: all.
  std::string kept(bool masked) {
    std::string keep;
    if (masked && scores_->kept) keep = function(scores_->kept, "k_");
    if (!k_.even_keys) keep += (keep.empty() ? "(" : " & (") + std::string("key < N)");
    if (keep.empty()) return {};
    line("keep = " + keep);
    return "keep";
  }
  // The scores in base 2, masked, from `product`. Their indices are qi and ki.
  void score(const std::string& product, bool masked, bool named) {
    bool plain = !scores_->scored && !named;
    line(plain ? std::string("post = ") + product + " * (scale * " + kLog2E + ")" : "score = " + product + " * scale");
    std::string keep = kept(masked);
    if (!plain) {
      std::string post = scores_->scored ? function(scores_->scored, "s_") : "score";
      line("post = " + post + " * " + kLog2E);
    }
    if (!keep.empty()) line("post = tl.where(keep, post, float(\"-inf\"))");
  }

  void indices(const std::string& queries, const std::string& keys, bool transposed) {
    auto at = [&](const std::string& v, bool first) { return v + (first ? "[:, None]" : "[None, :]"); };
    if (!queries.empty())
      line("qi = " + at(k_.even_queries ? queries : "tl.minimum(" + queries + ", M - 1)", !transposed));
    if (keys.empty()) return;
    line("ki = " + at(k_.even_keys ? keys : "tl.minimum(" + keys + ", N - 1)", transposed));
    if (!k_.even_keys) line("key = " + at(keys, transposed));
  }

  void place(int rows, const char* count, const char* extent, const char* heads) {
    line("pid = tl.program_id(0)");
    line(std::string("tiles = tl.cdiv(") + extent + ", " + std::to_string(rows) + ")");
    line(std::string("b = pid // tiles // ") + heads);
    line(std::string("h") + (std::string(heads) == "H" ? "" : "k") + " = pid // tiles % " + heads);
    line(std::string("tile = ") + count);
  }
  void list_row(int rows, int64_t block) {
    if (!k_.lists) return;
    line("row = b * list_b + h * list_h + tile * " + std::to_string(rows) + " // " + std::to_string(block));
  }
  // for start in the blocks that the lists name (full: those that need no mask): `body(masked)`.
  template <class F>
  void blocks(int size, int64_t block, const char* extent, F&& body) {
    auto loop = [&](const std::string& prefix, const char* columns, bool masked) {
      std::string per = std::to_string(block / size), each = std::to_string(size);
      bool one = block == size;
      if (k_.lists) {
        line("count = tl.load(" + prefix + "num + row)" + (one ? "" : " * " + per));
        line("for turn in range(0, count):");
        ++indent_;
        line("start = tl.load(" + prefix + "idx + row * " + columns + " + turn" + (one ? "" : " // " + per) + ") * " +
             std::to_string(block) + (one ? "" : " + turn % " + per + " * " + each));
        line("start = tl.multiple_of(start, " + each + ")");
      } else {
        line("for turn in range(0, tl.cdiv(" + std::string(extent) + ", " + each + ")):");
        ++indent_;
        line("start = turn * " + each);
      }
      body(masked);
      --indent_;
    };
    if (k_.lists && k_.full_lists) loop("full_", "full_columns", false);
    loop("", "columns", true);
  }

  const AttentionKernel& k_;
  const ScorePrograms* scores_;
  Tile tile_;
  AttentionSource out_;
  std::set<std::string> helpers_;
  std::string body_;
  size_t indent_ = 1;
};

std::string arange(int n) { return "tl.arange(0, " + std::to_string(n) + ")"; }

std::string zeros(int rows, int columns) {
  return "tl.zeros([" + std::to_string(rows) + ", " + std::to_string(columns) + "], tl.float32)";
}

AttentionSource Writer::forward() {
  tensor("Q", Role::Query), tensor("K", Role::Key), tensor("V", Role::Value), tensor("O", Role::Out);
  statistic("LSE", Role::Lse), statistic("MAX", Role::Max);
  strides("q", Role::Query), strides("k", Role::Key), strides("v", Role::Value), strides("o", Role::Out);
  common();
  int rows = tile_.rows, columns = tile_.columns, D = padded(k_.key_dim), E = padded(k_.value_dim);
  std::string group = std::to_string(k_.group), n = std::to_string(rows);
  // The last queries first: under causal masks they meet most keys.
  place(rows, "tiles - 1 - pid % tiles", "M", "H");
  line("offs_m = tile * " + n + " + " + arange(rows));
  line("offs_d = " + arange(D));
  line("offs_e = " + arange(E));
  line("q = " + load(tile("Q + b * q_b + h * q_h", "offs_m", "q_s", "M", k_.even_queries, k_.key_dim, "offs_d")));
  std::string head = k_.group == 1 ? "h" : "h // " + group;
  line("k_base = K + b * k_b + " + head + " * k_h");
  line("v_base = V + b * v_b + " + head + " * v_h");
  indices("offs_m", "", false);
  line("m_i = tl.full([" + n + "], float(\"-inf\"), tl.float32)");
  line("l_i = tl.zeros([" + n + "], tl.float32)");
  line("acc = " + zeros(rows, E));
  list_row(rows, k_.q_block);
  blocks(columns, k_.kv_block, "N", [&](bool masked) {
    line("n = start + " + arange(columns));
    line("k = " + load(tile("k_base", "n", "k_s", "N", k_.even_keys, k_.key_dim, "offs_d", true)));
    indices("", "n", false);
    score(dot("q", "k"), masked, false);
    line("top = tl.maximum(m_i, tl.max(post, 1))");
    line("safe = tl.where(top == float(\"-inf\"), 0.0, top)");
    line("p = tl.exp2(post - safe[:, None])");
    line("alpha = tl.exp2(m_i - safe)");
    line("l_i = l_i * alpha + tl.sum(p, 1)");
    line("v = " + load(tile("v_base", "n", "v_s", "N", k_.even_keys, k_.value_dim, "offs_e")));
    line("acc = acc * alpha[:, None]");
    line("acc = " + dot("p.to(" + type() + ")", "v", "acc"));
    line("m_i = top");
  });
  line("empty = m_i == float(\"-inf\")");
  line("l_i = tl.where(empty, 1.0, l_i)");
  store(tile("O + b * o_b + h * o_h", "offs_m", "o_s", "M", k_.even_queries, k_.value_dim, "offs_e"),
        "(acc / l_i[:, None]).to(" + type() + ")");
  std::string rows_mask = k_.even_queries ? ")" : ", mask=offs_m < M)";
  line("tl.store(LSE + (b * H + h) * M + offs_m, tl.where(empty, float(\"-inf\"), m_i + tl.log2(l_i))" + rows_mask);
  line("tl.store(MAX + (b * H + h) * M + offs_m, m_i" + rows_mask);
  return finish(rows);
}

AttentionSource Writer::delta(bool grad_lse) {
  tensor("O", Role::Out), tensor("G", Role::GradOut);
  if (grad_lse) statistic("GRAD_LSE", Role::GradLse);
  statistic("DELTA", Role::Delta);
  strides("o", Role::Out), strides("g", Role::GradOut);
  parameter("H", "i32", Role::Heads);
  parameter("M", "i32", Role::Queries);
  parameter("error", "*i32", Role::Error);
  int rows = tile_.rows;
  place(rows, "pid % tiles", "M", "H");
  line("offs_m = tile * " + std::to_string(rows) + " + " + arange(rows));
  line("offs_e = " + arange(padded(k_.value_dim)));
  auto rows_of = [&](const char* name, const char* base, const char* stride) {
    line(std::string(name) + " = " + load(tile(base, "offs_m", stride, "M", k_.even_queries, k_.value_dim, "offs_e")) +
         ".to(tl.float32)");
  };
  rows_of("o", "O + b * o_b + h * o_h", "o_s");
  rows_of("g", "G + b * g_b + h * g_h", "g_s");
  line("delta = tl.sum(o * g, 1)");
  if (grad_lse) line("delta -= " + statistic_at("GRAD_LSE", "offs_m", "0.0") + std::string(" * ") + kLog2E);
  line(std::string("tl.store(DELTA + (b * H + h) * M + offs_m, delta") +
       (k_.even_queries ? ")" : ", mask=offs_m < M)"));
  return finish(rows);
}

// The weights p, and ds, the gradient of the scores, from `product` (of queries and keys) and `toward` (of gradients
// and values).
void Writer::gradient(const std::string& product, const std::string& toward, const std::string& per_query, bool masked,
                      const std::function<void()>& between) {
  score(product, masked, scores_->gradient);
  bool keep = (masked && scores_->kept) || !k_.even_keys;
  line("p = tl.exp2(post - lse" + per_query + ")");
  between();
  line("dp = " + toward);
  line("ds = p * (dp - delta" + per_query + ")");
  if (!scores_->gradient) return;
  line("ds = " + function(scores_->gradient, "g_"));
  if (keep) line("ds = tl.where(keep, ds, 0.0)");
}

AttentionSource Writer::backward_query() {
  tensor("Q", Role::Query), tensor("K", Role::Key), tensor("V", Role::Value), tensor("G", Role::GradOut);
  statistic("LSE", Role::Lse), statistic("DELTA", Role::Delta);
  tensor("DQ", Role::GradQuery);
  strides("q", Role::Query), strides("k", Role::Key), strides("v", Role::Value), strides("g", Role::GradOut);
  strides("dq", Role::GradQuery);
  common();
  int rows = tile_.rows, columns = tile_.columns, D = padded(k_.key_dim), E = padded(k_.value_dim);
  place(rows, "tiles - 1 - pid % tiles", "M", "H");
  line("offs_m = tile * " + std::to_string(rows) + " + " + arange(rows));
  line("offs_d = " + arange(D));
  line("offs_e = " + arange(E));
  line("q = " + load(tile("Q + b * q_b + h * q_h", "offs_m", "q_s", "M", k_.even_queries, k_.key_dim, "offs_d")));
  line("g = " + load(tile("G + b * g_b + h * g_h", "offs_m", "g_s", "M", k_.even_queries, k_.value_dim, "offs_e")));
  statistics("offs_m");
  std::string head = k_.group == 1 ? "h" : "h // " + std::to_string(k_.group);
  line("k_base = K + b * k_b + " + head + " * k_h");
  line("v_base = V + b * v_b + " + head + " * v_h");
  indices("offs_m", "", false);
  line("dq = " + zeros(rows, D));
  list_row(rows, k_.q_block);
  blocks(columns, k_.kv_block, "N", [&](bool masked) {
    line("n = start + " + arange(columns));
    line("k = " + load(tile("k_base", "n", "k_s", "N", k_.even_keys, k_.key_dim, "offs_d")));
    indices("", "n", false);
    gradient(dot("q", "tl.trans(k)"), dot("g", "tl.trans(v)"), "[:, None]", masked,
             [&] { line("v = " + load(tile("v_base", "n", "v_s", "N", k_.even_keys, k_.value_dim, "offs_e"))); });
    line("dq = " + dot("ds.to(" + type() + ")", "k", "dq"));
  });
  store(tile("DQ + b * dq_b + h * dq_h", "offs_m", "dq_s", "M", k_.even_queries, k_.key_dim, "offs_d"),
        "(dq * scale).to(" + type() + ")");
  return finish(rows);
}

AttentionSource Writer::backward_key() {
  tensor("Q", Role::Query), tensor("K", Role::Key), tensor("V", Role::Value), tensor("G", Role::GradOut);
  statistic("LSE", Role::Lse), statistic("DELTA", Role::Delta);
  tensor("DK", Role::GradKey), tensor("DV", Role::GradValue);
  strides("q", Role::Query), strides("k", Role::Key), strides("v", Role::Value), strides("g", Role::GradOut);
  strides("dk", Role::GradKey), strides("dv", Role::GradValue);
  common();
  int rows = tile_.rows, columns = tile_.columns, D = padded(k_.key_dim), E = padded(k_.value_dim);
  std::string group = std::to_string(k_.group);
  if (k_.group == 1) {
    place(columns, "pid % tiles", "N", "H");
    line("hk = h");
  } else {
    line("groups = H // " + group);
    place(columns, "pid % tiles", "N", "groups");
  }
  line("offs_n = tile * " + std::to_string(columns) + " + " + arange(columns));
  line("offs_d = " + arange(D));
  line("offs_e = " + arange(E));
  line("k = " + load(tile("K + b * k_b + hk * k_h", "offs_n", "k_s", "N", k_.even_keys, k_.key_dim, "offs_d")));
  line("v = " + load(tile("V + b * v_b + hk * v_h", "offs_n", "v_s", "N", k_.even_keys, k_.value_dim, "offs_e")));
  indices("", "offs_n", true);
  line("dk = " + zeros(columns, D));
  line("dv = " + zeros(columns, E));
  if (k_.group != 1) {
    line("for member in range(0, " + group + "):");
    ++indent_;
    line("h = hk * " + group + " + member");
  }
  line("q_base = Q + b * q_b + h * q_h");
  line("g_base = G + b * g_b + h * g_h");
  list_row(columns, k_.kv_block);
  blocks(rows, k_.q_block, "M", [&](bool masked) {
    line("m = start + " + arange(rows));
    line("q = " + load(tile("q_base", "m", "q_s", "M", k_.even_queries, k_.key_dim, "offs_d")));
    indices("m", "", true);
    statistics("m");
    gradient(dot("k", "tl.trans(q)"), dot("v", "tl.trans(g)"), "[None, :]", masked, [&] {
      line("g = " + load(tile("g_base", "m", "g_s", "M", k_.even_queries, k_.value_dim, "offs_e")));
      line("dv = " + dot("p.to(" + type() + ")", "g", "dv"));
    });
    line("dk = " + dot("ds.to(" + type() + ")", "q", "dk"));
  });
  if (k_.group != 1) --indent_;
  store(tile("DK + b * dk_b + hk * dk_h", "offs_n", "dk_s", "N", k_.even_keys, k_.key_dim, "offs_d"),
        "(dk * scale).to(" + type() + ")");
  store(tile("DV + b * dv_b + hk * dv_h", "offs_n", "dv_s", "N", k_.even_keys, k_.value_dim, "offs_e"),
        "dv.to(" + type() + ")");
  return finish(columns);
}

}  // namespace

AttentionSource attention_forward(const AttentionKernel& kernel, const ScorePrograms& scores) {
  return Writer(kernel, &scores, forward_tile(kernel)).forward();
}
AttentionSource attention_delta(const AttentionKernel& kernel, bool grad_lse) {
  return Writer(kernel, nullptr, {64, 64, 4, 1}).delta(grad_lse);
}
AttentionSource attention_backward_query(const AttentionKernel& kernel, const ScorePrograms& scores) {
  return Writer(kernel, &scores, query_tile(kernel)).backward_query();
}
AttentionSource attention_backward_key(const AttentionKernel& kernel, const ScorePrograms& scores) {
  return Writer(kernel, &scores, key_tile(kernel)).backward_key();
}

}  // namespace braze::codegen::triton
