#include "codegen/triton/product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "base/hash.h"
#include "codegen/triton/helpers.h"
#include "codegen/triton/printer.h"
#include "loop/analysis.h"

namespace braze::codegen::triton {
namespace {

constexpr int kGroup = 8;  // rows of tiles whose programs follow each other: they find the factors in the cache

std::string text(int64_t n) { return std::to_string(n); }
int64_t ceildiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Writer {
 public:
  Writer(const Product& p, const ProductConfig& c, const Target& target) : p_(p), c_(c), target_(target) {
    for (const Factor* f : {&p.left, &p.right}) wide_ |= !fits(*f);
  }

  ProductSource run() {
    names_factors();
    line("YBLOCK: tl.constexpr = " + text(c_.m));
    line("XBLOCK: tl.constexpr = " + text(c_.n));
    line("KBLOCK: tl.constexpr = " + text(c_.k));
    if (c_.descriptors)
      by_descriptors();
    else
      by_pointers();
    return finish();
  }

 private:
  void line(const std::string& s) { body_ += std::string(4 * indent_, ' ') + s + "\n"; }
  int64_t tiles_m() const { return ceildiv(p_.m, c_.m); }
  int64_t tiles_n() const { return ceildiv(p_.n, c_.n); }
  bool even(int64_t n, int block) const { return n % block == 0; }

  // Whether offsets of the factor's elements fit 32 bits, with those of a tile beyond its end.
  bool fits(const Factor& f) const {
    bool left = &f == &p_.left;
    int64_t rows = (left ? p_.m : p_.k) + 512, columns = (left ? p_.k : p_.n) + 512;
    double last = static_cast<double>(f.offset);
    for (auto [extent, stride] : {std::pair(p_.batch, f.strides[0]), {rows, f.strides[1]}, {columns, f.strides[2]}})
      last += static_cast<double>(extent) * static_cast<double>(stride);
    return last < INT32_MAX;
  }

  // ---- parameters ----
  std::string pointer(loop::BufferId b) {
    auto [at, fresh] = pointers_.try_emplace(b.index);
    if (fresh) {
      const loop::Buffer& buffer = p_.program->buffers[b];
      // By place: products that differ in their buffers alone are one.
      at->second = "p" + text(static_cast<int64_t>(out_.buffers.size()));
      out_.source.arguments.emplace_back(at->second, pointer_type(buffer.dtype));
      out_.buffers.push_back(b);
    }
    return at->second;
  }
  void names_factors() {
    for (const Factor* f : {&p_.left, &p_.right})
      if (!f->made) pointer(f->buffer);
  }
  // The pointers of all buffers that a nest uses, but for some.
  std::map<uint32_t, std::string> pointers_of(const loop::Nest& nest, const std::set<uint32_t>& but) {
    std::map<uint32_t, std::string> out;
    for (const loop::Access& a : loop::accesses(nest))
      if (!but.contains(a.buffer.index)) out[a.buffer.index] = pointer(a.buffer);
    return out;
  }

  // ---- a tile's place ----
  void place() {
    int64_t per_group = kGroup * tiles_n();
    if (p_.batch > 1) {
      line("batch = tile // " + text(tiles_m() * tiles_n()));
      line("tile = tile % " + text(tiles_m() * tiles_n()));
    }
    if (tiles_m() == 1) {
      line("tile_m = 0");
      line("tile_n = tile");
    } else if (tiles_n() == 1) {
      line("tile_m = tile");
      line("tile_n = 0");
    } else {
      line("first = tile // " + text(per_group) + " * " + text(kGroup));
      std::string height = text(kGroup);
      if (tiles_m() % kGroup) {
        line("height = tl.minimum(" + text(tiles_m()) + " - first, " + text(kGroup) + ")");
        height = "height";
      }
      line("tile_m = first + tile % " + text(per_group) + " % " + height);
      line("tile_n = tile % " + text(per_group) + " // " + height);
    }
  }
  void indices() {
    std::string wide = wide_ ? ".to(tl.int64)" : "";
    line("rm = (tile_m * YBLOCK + tl.arange(0, YBLOCK))" + wide);
    line("rn = (tile_n * XBLOCK + tl.arange(0, XBLOCK))" + wide);
    line("row = rm[:, None]");
    line("column = rn[None, :]");
    if (!even(p_.m, c_.m)) line("row_mask = row < " + text(p_.m));
    if (!even(p_.n, c_.n)) line("column_mask = column < " + text(p_.n));
  }

  // ---- factors by pointers ----
  static std::string times(const std::string& index, int64_t stride) {
    return stride == 1 ? index : index + " * " + text(stride);
  }
  static std::string masks(std::initializer_list<std::string> all) {
    std::string out;
    for (const std::string& m : all)
      if (!m.empty()) out += (out.empty() ? "" : " & ") + m;
    return out;
  }
  void load(const Factor& f, const std::string& name) {
    bool left = &f == &p_.left;
    std::string rows = left ? "row" : "k_row", columns = left ? "k_column" : "column";
    std::string row_mask = left ? (even(p_.m, c_.m) ? "" : "row_mask") : k_mask("k_row"),
                column_mask = left ? k_mask("k_column") : (even(p_.n, c_.n) ? "" : "column_mask");
    if (!f.made) {
      std::string at = pointer(f.buffer), mask = masks({row_mask, column_mask});
      if (f.offset) at += " + " + text(f.offset);
      if (p_.batch > 1 && f.strides[0]) at += " + " + times(wide_ ? "batch.to(tl.int64)" : "batch", f.strides[0]);
      at += " + (" + times(rows, f.strides[1]) + " + " + times(columns, f.strides[2]) + ")";
      line(name + " = tl.load(" + at + (mask.empty() ? ")" : ", mask=" + mask + ", other=0.0)"));
      return;
    }
    TileNames names;
    std::pair<std::string, Along> row{rows, Along::Rows}, column{columns, Along::Columns};
    names.indices = {std::pair<std::string, Along>{"0", Along::Neither}, f.transposed ? column : row,
                     f.transposed ? row : column};
    names.row_mask = row_mask, names.column_mask = column_mask;
    names.taken = {f.buffer.index};
    names.prefix = name + "_";
    names.quick = size_of(f.dtype) <= 2;
    names.pointers = pointers_of(f.made->nest, names.taken);
    TileText made = print_tile(*p_.program, *f.made, names, target_.sm, helpers_);
    for (const std::string& s : made.lines) line(s);
    std::string value = made.values.at(f.buffer.index), mask = masks({row_mask, column_mask});
    // What the nest makes of elements beyond the end need not be zero.
    if (!mask.empty()) value = "tl.where(" + mask + ", " + value + ", 0.0)";
    line(name + " = tl.broadcast_to(" + value + ", " + (left ? "[YBLOCK, KBLOCK]" : "[KBLOCK, XBLOCK]") + ").to(" +
         storage_type(f.dtype) + ")");
  }
  std::string k_mask(const std::string& index) const {
    return even(p_.k, c_.k) ? "" : "(" + index + " < " + text(p_.k) + ")";
  }
  void dot(const std::string& left, const std::string& right) {
    line("acc = tl.dot(" + left + ", " + right + ", acc)");
  }

  void by_pointers() {
    out_.programs = p_.batch * tiles_m() * tiles_n();
    line("tile = tl.program_id(0)");
    place();
    indices();
    line("acc = tl.zeros([YBLOCK, XBLOCK], tl.float32)");
    line("for start in range(0, " + text(p_.k) + ", KBLOCK):");
    ++indent_;
    line("rk = " + std::string(wide_ ? "(start + tl.arange(0, KBLOCK)).to(tl.int64)" : "start + tl.arange(0, KBLOCK)"));
    line("k_row = rk[:, None]");
    line("k_column = rk[None, :]");
    load(p_.left, "left");
    load(p_.right, "right");
    dot("left", "right");
    --indent_;
    after();
  }

  // ---- factors by descriptors ----
  // Whether a descriptor can name it: its rows, or its columns, are dense and start at multiples of 16 bytes.
  void descriptor(const Factor& f, const std::string& name) {
    bool left = &f == &p_.left, by_column = f.strides[2] != 1;
    int64_t rows = left ? p_.m : p_.k, columns = left ? p_.k : p_.n;
    std::string row_block = left ? "YBLOCK" : "KBLOCK", column_block = left ? "KBLOCK" : "XBLOCK";
    int64_t stride = by_column ? f.strides[2] : f.strides[1];
    if (by_column) std::swap(rows, columns), std::swap(row_block, column_block);
    line(name + " = tl.make_tensor_descriptor(" + pointer(f.buffer) + (f.offset ? " + " + text(f.offset) : "") +
         ", shape=[" + text(rows) + ", " + text(columns) + "], strides=[" + text(stride) + ", 1], block_shape=[" +
         row_block + ", " + column_block + "])");
  }
  static std::string block(const Factor& f, const std::string& name, const std::string& row,
                           const std::string& column) {
    bool by_column = f.strides[2] != 1;
    return name + ".load([" + (by_column ? column + ", " + row : row + ", " + column) + "])" + (by_column ? ".T" : "");
  }

  void by_descriptors() {
    int64_t tiles = tiles_m() * tiles_n();
    out_.programs = std::min<int64_t>(tiles, target_.multiprocessors);
    descriptor(p_.left, "left_rows");
    descriptor(p_.right, "right_rows");
    line("for turn in tl.range(tl.program_id(0), " + text(tiles) + ", " + text(out_.programs) + ", " +
         (c_.specialised ? "warp_specialize" : "flatten") + "=True):");
    ++indent_;
    line("tile = turn");
    place();
    line("acc = tl.zeros([YBLOCK, XBLOCK], tl.float32)");
    line("for start in range(0, " + text(p_.k) + ", KBLOCK):");
    ++indent_;
    line("left = " + block(p_.left, "left_rows", "tile_m * YBLOCK", "start"));
    line("right = " + block(p_.right, "right_rows", "start", "tile_n * XBLOCK"));
    dot("left", "right");
    --indent_;
    indices();
    after();
    --indent_;
  }

  // ---- what comes after ----
  TileNames tile_names(const std::string& prefix) const {
    TileNames names;
    names.indices = {
        std::pair<std::string, Along>{"batch", Along::Neither}, {"row", Along::Rows}, {"column", Along::Columns}};
    if (!even(p_.m, c_.m)) names.row_mask = "row_mask";
    if (!even(p_.n, c_.n)) names.column_mask = "column_mask";
    names.prefix = prefix;
    names.quick = size_of(p_.program->buffers[p_.result].dtype) <= 2;
    return names;
  }
  void after() {
    std::string value = "acc";
    if (p_.own) {
      TileNames names = tile_names("own_");
      uint32_t result = 0;
      for (uint32_t b = 0; b < p_.own->buffers.size(); ++b) {
        const loop::Buffer& buffer = p_.own->buffers[loop::BufferId(b)];
        if (buffer.kind != loop::BufferKind::Input)
          result = b;
        else if (buffer.input == 0)
          names.given[b] = value;
        else
          names.pointers[b] = pointer(p_.own_operands.at(buffer.input - 1));
      }
      names.taken = {result};
      TileText made = print_tile(*p_.own, *p_.own_nest, names, target_.sm, helpers_);
      for (const std::string& s : made.lines) line(s);
      line("result = " + made.values.at(result));
      value = "result";
    }
    if (p_.keeps_result) store(value);
    if (!p_.after) return;
    TileNames names = tile_names("v_");
    names.given[p_.result.index] = value;
    names.pointers = pointers_of(p_.after->nest, {p_.result.index});
    for (const std::string& s : print_tile(*p_.program, *p_.after, names, target_.sm, helpers_).lines) line(s);
  }
  // The product itself, where somebody else reads it.
  void store(const std::string& value) {
    const std::array<int64_t, 3>& strides = p_.result_strides;
    double last = static_cast<double>(p_.batch) * static_cast<double>(strides[0]) +
                  static_cast<double>(p_.m + 512) * static_cast<double>(strides[1]) +
                  static_cast<double>(p_.n + 512) * static_cast<double>(strides[2]);
    bool wide = last > INT32_MAX;
    std::string at = times(wide ? "row.to(tl.int64)" : "row", strides[1]) + " + " + times("column", strides[2]);
    if (p_.batch > 1) at = times(wide ? "batch.to(tl.int64)" : "batch", strides[0]) + " + " + at;
    if (p_.result_offset) at = text(p_.result_offset) + " + " + at;
    std::string mask = masks({even(p_.m, c_.m) ? "" : "row_mask", even(p_.n, c_.n) ? "" : "column_mask"});
    line("tl.store(" + pointer(p_.result) + " + (" + at + "), tl.broadcast_to(" + value + ", [YBLOCK, XBLOCK])" +
         (mask.empty() ? ")" : ", mask=" + mask + ")"));
  }

  ProductSource finish() {
    Source& s = out_.source;
    s.sm = target_.sm;
    s.warps = c_.warps;
    s.stages = c_.stages;
    s.contract = true;
    s.arguments.emplace_back("error", "*i32");
    std::string head = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n",
                list, all;
    for (const Helper& h : kHelpers)
      if (helpers_.contains(h.name)) head += std::string("@triton.jit\n") + h.text + "\n\n";
    for (const auto& [name, type] : s.arguments) {
      list += (list.empty() ? "" : ", ") + name;
      all += type;
    }
    // Drivers know kernels by their names: all that decides on the machine code is in it.
    all += head + list + body_;
    Hasher first, second;
    second.add(1);
    for (Hasher* h : {&first, &second}) h->add(all), h->add(s.warps), h->add(s.stages), h->add(s.sm);
    char digits[40];
    std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(first.value()),
                  static_cast<unsigned long long>(second.value()));
    s.kernel = std::string("product_") + digits;
    s.text = head + "@triton.jit\ndef " + s.kernel + "(" + list + "):\n" + body_;
    return std::move(out_);
  }

  const Product& p_;
  const ProductConfig& c_;
  const Target& target_;
  bool wide_ = false;  // offsets of factors
  ProductSource out_;
  std::map<uint32_t, std::string> pointers_;
  std::set<std::string> helpers_;
  std::string body_;
  size_t indent_ = 1;
};

bool describable(const Factor& f) {
  if (f.made || f.strides[0]) return false;
  int64_t bytes = static_cast<int64_t>(size_of(f.dtype));
  int64_t dense = f.strides[2] == 1 ? f.strides[1] : f.strides[1] == 1 ? f.strides[2] : 0;
  return dense > 0 && dense * bytes % 16 == 0 && f.offset * bytes % 16 == 0;
}

}  // namespace

std::string ProductConfig::label() const {
  return text(m) + "x" + text(n) + "x" + text(k) + " w" + text(warps) + " s" + text(stages) +
         (descriptors ? " tma" : "") + (specialised ? " ws" : "");
}

int64_t shared_bytes(const Product& p, const ProductConfig& c) {
  auto bytes = [](const Factor& f) { return static_cast<int64_t>(size_of(f.dtype)); };
  return (c.m * c.k * bytes(p.left) + c.k * c.n * bytes(p.right)) * c.stages;
}

std::vector<ProductConfig> product_configs(const Product& p, const Target& target) {
  static const ProductConfig kAll[] = {
      {128, 256, 64, 8, 3, true},  {128, 256, 64, 8, 4, true},  {256, 128, 64, 8, 3, true},
      {128, 128, 64, 8, 4, true},  {128, 128, 64, 4, 4, true},  {128, 256, 64, 8, 3, false},
      {256, 128, 64, 8, 3, false}, {128, 128, 64, 8, 4, false}, {128, 128, 64, 4, 3, false},
      {128, 64, 64, 4, 4, false},  {64, 256, 64, 4, 4, false},  {64, 128, 64, 4, 4, false},
      {64, 64, 128, 4, 4, false},  {64, 64, 64, 4, 5, false},   {64, 32, 128, 4, 4, false},
      {32, 64, 128, 4, 5, false},  {32, 32, 128, 4, 5, false},  {16, 128, 128, 4, 4, false},
      {16, 64, 128, 4, 5, false},  {16, 64, 256, 4, 4, false},  {16, 32, 128, 2, 6, false},
      {16, 32, 256, 4, 5, false},  {16, 16, 256, 2, 6, false},
  };
  constexpr int64_t kShared = 227 << 10;  // of a multiprocessor of compute capability 9.0, for one block
  const int64_t shared = target.sm >= 90 ? kShared : target.sm == 80 ? 163 << 10 : 99 << 10;
  auto power = [](int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); };
  const int64_t most_m = std::max<int64_t>(16, power(p.m)), most_n = std::max<int64_t>(16, power(p.n)),
                most_k = std::max<int64_t>(32, power(p.k));
  const bool described =
      target.sm >= 90 && p.batch == 1 && describable(p.left) && describable(p.right) && p.m >= 64 && p.n % 8 == 0;
  std::vector<std::pair<double, ProductConfig>> found;
  for (ProductConfig c : kAll) {
    if (c.m > most_m || c.n > most_n || c.k > most_k || (c.descriptors && !described)) continue;
    if (shared_bytes(p, c) > shared) continue;
    double m = static_cast<double>(ceildiv(p.m, c.m)), n = static_cast<double>(ceildiv(p.n, c.n));
    double tiles = m * n * static_cast<double>(p.batch), sms = target.multiprocessors;
    // Small tiles run several to a multiprocessor; large ones read each factor less often.
    double together = std::clamp(std::floor(static_cast<double>(shared) / static_cast<double>(shared_bytes(p, c))), 1.0,
                                 static_cast<double>(64 / c.warps));
    double turns = std::ceil(tiles / sms);
    double area = static_cast<double>(c.m) * c.n;
    // Of one turn on a multiprocessor, in units of multiplications of its tensor cores (2048 in a cycle; narrow tiles
    // use their older form); the cache gives 64 bytes in a cycle, memory 21 if enough of it is on its way.
    double compute = area * c.k / (c.m >= 64 ? 1.0 : 0.6), loads = (c.m + c.n) * static_cast<double>(c.k) * 2 * 32;
    double turn = std::max(compute, loads) * std::ceil(static_cast<double>(p.k) / c.k);
    double bytes = (static_cast<double>(p.m) + static_cast<double>(p.n)) * static_cast<double>(p.k * p.batch) * 2;
    double in_flight = std::min(tiles, sms * together) * static_cast<double>(shared_bytes(p, c));
    double memory = bytes / sms * 98 * std::max(1.0, 4e6 / in_flight);
    found.emplace_back(std::max(turns * turn, memory) * (c.descriptors ? 0.95 : 1.0), c);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  constexpr size_t kMost = 8;
  std::vector<ProductConfig> out;
  for (const auto& [cost, c] : found)
    if (out.size() < kMost) out.push_back(c);
  return out;
}

ProductSource print_product(const Product& product, const ProductConfig& config, const Target& target) {
  return Writer(product, config, target).run();
}

}  // namespace braze::codegen::triton
