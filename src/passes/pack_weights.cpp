#include "passes/pack_weights.h"

#include "graph/depthwise.h"
#include "graph/packed_weight.h"
#include "graph/pointwise_convolution.h"
#include "passes/builder.h"
#include "passes/frozen.h"

namespace braze::passes {
namespace {

constexpr int64_t kFewRows = 16;  // of a product of floats: runtime/gemm reads the weight as it is, once
// Multiplications that are worth the time that oneDNN's operators take before they begin (15 us; PyTorch's convolutions
// of images that are no single small one have it, too, but those with windows of one element).
constexpr int64_t kWorthProduct = 12 << 20, kWorthProductOfHalves = 60 << 10, kWorthWindow = 1 << 20,
                  kWorthElement = 12 << 20;
constexpr int64_t kGuess = 64;          // for a size that varies
constexpr int64_t kSmallImage = 20480;  // elements of a single one up to which PyTorch does not call oneDNN

class Packer {
 public:
  Packer(const Graph& g, const Targets& targets) : g_(g), targets_(targets), frozen_(frozen_values(g)), r_(g) {}

  Graph run() {
    for (const Node& n : g_.nodes()) {
      if (graph::is_pointwise_convolution(g_, n, targets_) && is_weight(n.args[1], DType::F32))
        pointwise(n);
      else if (n.op == Op::convolution && takes_convolution(n) && !graph::is_depthwise(g_, n, targets_))
        convolution(n);
      else if ((n.op == Op::mm && takes_product(n, 0)) || (n.op == Op::addmm && takes_addmm(n)))
        linear(n);
      else
        r_.copy(n);
    }
    return r_.finish();
  }

 private:
  // In types that its kernels have instructions for.
  bool fits(const TensorType& t) const {
    if (t.device.type != DeviceType::CPU || targets_.cpu.architecture != Target::Architecture::X86_64) return false;
    return t.dtype == DType::F32 || (t.dtype == DType::BF16 && targets_.cpu.vector_bits >= 512);
  }

  int64_t size(Expr e) const { return g_.arena().as_const(e).value_or(kGuess); }
  int64_t count(const std::vector<Expr>& sizes) const {
    int64_t n = 1;
    for (Expr e : sizes) n *= size(e);
    return n;
  }

  bool is_worth_convolution(const Node& n) const {
    auto *image = std::get_if<ValueId>(&n.args[0]), *weight = std::get_if<ValueId>(&n.args[1]);
    if (!image || !weight) return false;
    const TensorType& t = g_.type(n.outputs[0]);
    if (t.dtype != DType::F32) return true;
    const auto& window = g_.type(*weight).sizes;
    const int64_t work = count(t.sizes) * count(window) / size(window[0]);
    const bool element = size(window[2]) == 1 && size(window[3]) == 1;
    const bool grouped = !g_.arena().is_const(std::get<Expr>(n.args[8]), 1);
    if (element && !grouped) return work >= kWorthElement;
    const auto& sizes = g_.type(*image).sizes;
    return grouped || size(sizes[0]) > 1 || count(sizes) > kSmallImage || work >= kWorthWindow;
  }

  bool is_weight(const Arg& a, DType dtype) const {
    auto* v = std::get_if<ValueId>(&a);
    return v && frozen_[v->index] && g_.type(*v).dtype == dtype;
  }

  bool is_bias(const Arg& a, const TensorType& result, size_t channel) const {
    if (std::holds_alternative<NoneArg>(a)) return true;
    auto* v = std::get_if<ValueId>(&a);
    return v && g_.type(*v).dtype == result.dtype && g_.type(*v).dim() == 1 &&
           g_.type(*v).sizes[0] == result.sizes[channel];
  }

  bool takes_convolution(const Node& n) const {
    if (n.args.size() < 9 || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
    const TensorType& t = g_.type(n.outputs[0]);
    auto* transposed = std::get_if<bool>(&n.args[6]);
    return t.dim() == 4 && fits(t) && transposed && !*transposed && is_weight(n.args[1], t.dtype) &&
           is_bias(n.args[2], t, 1) && std::holds_alternative<Expr>(n.args[8]) && is_worth_convolution(n);
  }

  // x at argument i, the weight after it.
  bool takes_product(const Node& n, size_t i) const {
    if (n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
    const TensorType& t = g_.type(n.outputs[0]);
    if (!fits(t) || !is_weight(n.args[i + 1], t.dtype)) return false;
    if (g_.type(std::get<ValueId>(n.args[i])).dtype != t.dtype) return false;
    auto rows = g_.arena().as_const(t.sizes[0]);
    const int64_t work = count(t.sizes) * size(g_.type(std::get<ValueId>(n.args[i])).sizes[1]);
    if (t.dtype != DType::F32) return work >= kWorthProductOfHalves;
    return (!rows || *rows >= kFewRows) && work >= kWorthProduct;
  }
  bool takes_addmm(const Node& n) const {
    return n.args.size() >= 3 && is_one_or_absent(g_, n, 3) && is_one_or_absent(g_, n, 4) && takes_product(n, 1) &&
           is_bias(n.args[0], g_.type(n.outputs[0]), 1);
  }

  void call(const Node& n, std::string_view name, std::vector<Arg> args) {
    NodeId made =
        r_.out().add_node(Op::Extern, std::move(args), {g_.type(n.outputs[0])}, n.origin(), std::string(name), {-1});
    r_.replace(n.outputs[0], r_.out().node(made).outputs[0]);
  }

  void convolution(const Node& n) {
    std::vector<Arg> a = r_.map_args(n);
    call(n, graph::packed_convolution(),
         {a[0], a[1], a[2], a[4], a[3], a[5], a[8], std::string("none"), DoubleList(), std::string()});
  }

  // A kernel of ours, for which factors of neighbouring results lie next to each other.
  void pointwise(const Node& n) {
    const auto& sizes = g_.type(n.outputs[0]).sizes;
    if (g_.arena().is_const(sizes[2], 1) && g_.arena().is_const(sizes[3], 1)) {  // sums along the rows that there are
      r_.copy(n);
      return;
    }
    std::vector<Arg> args = r_.map_args(n);
    Builder b(r_.out(), n, {}, g_);
    auto swapped = [&](Arg v) { return b.call(Op::transpose_int, {std::move(v), b.k(0), b.k(1)}); };
    args[1] = swapped(b.call(Op::clone, {swapped(args[1]), graph::MemoryFormatArg{0}}));
    r_.copy(n, std::move(args));
  }

  // Its weight has a row for each column of the result.
  void linear(const Node& n) {
    std::vector<Arg> a = r_.map_args(n);
    Arg bias = n.op == Op::addmm ? a[0] : Arg(NoneArg{});
    const size_t x = n.op == Op::addmm ? 1 : 0;
    Builder b(r_.out(), n, {}, g_);
    ValueId rows = b.call(Op::transpose_int, {a[x + 1], b.k(0), b.k(1)});
    call(n, graph::packed_linear(), {a[x], rows, bias, std::string("none"), DoubleList(), std::string()});
  }

  const Graph& g_;
  const Targets& targets_;
  std::vector<bool> frozen_;
  Rewriter r_;
};

}  // namespace

Graph pack_weights(const Graph& g, const Targets& targets) { return Packer(g, targets).run(); }

}  // namespace braze::passes
