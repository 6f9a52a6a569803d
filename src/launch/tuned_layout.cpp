#include "launch/tuned_layout.h"

#include <algorithm>
#include <stdexcept>

#include "driver/driver.h"
#include "launch/run_twice.h"
#include "launch/runnable.h"
#include "launch/timed_ways.h"

namespace braze::launch {
namespace {

// Of the time: one share is for the layouts, the others are for what each makes.
int64_t shares(size_t layouts) { return 1 + static_cast<int64_t>(layouts); }

const char* text_of(ConvolutionLayout layout) {
  return layout == ConvolutionLayout::Auto ? "by rule" : names_of(layout)[static_cast<size_t>(layout)].data();
}

Captured copy_of(const Captured& captured) {
  for (PyObject* constant : captured.constants) Py_INCREF(constant);
  return captured;
}

// New references to outputs that nobody asked for.
class Outputs {
 public:
  explicit Outputs(size_t n) : objects_(n, nullptr) {}
  ~Outputs() {
    for (PyObject* o : objects_) Py_XDECREF(o);
  }
  Outputs(const Outputs&) = delete;
  PyObject** data() { return objects_.data(); }

 private:
  std::vector<PyObject*> objects_;
};

class TunedLayout : public Runnable {
 public:
  TunedLayout(Captured captured, std::vector<ConvolutionLayout> layouts, std::unique_ptr<RunTwice> twice,
              const Options& options, bool texts)
      : symbols_(captured.graph.size_symbols.size()),
        twice_(std::move(twice)),
        timed_(share_of(options, layouts.size()), options.disk_cache) {
    const auto& nodes = captured.graph.nodes();
    call_.kind = codegen::Report::Kind::Layout;
    call_.what = std::to_string(std::count_if(nodes.begin(), nodes.end(),
                                              [](const graph::Node& n) { return n.op == graph::Op::convolution; })) +
                 " convolutions";
    Options with = options;
    with.autotune_seconds = 0;  // an answer for any time
    ByteWriter more;
    describe(with, more);
    call_.more = graph::print(captured.graph) + more.bytes();
    for (ConvolutionLayout layout : layouts) names_.push_back(text_of(layout));
    with.autotune_seconds = options.autotune_seconds / shares(layouts.size());
    // Of known sizes the choice may be known, too.
    if (symbols_ == 0)
      if (int way = timed_.recall({}, call_, names_); way >= 0) layouts = {layouts[static_cast<size_t>(way)]};
    auto make = [&](ConvolutionLayout layout, Captured of) {
      with.convolution_layout = layout;
      ways_.push_back(make_laid_out(std::move(of), with, texts));
    };
    for (size_t i = 0; i + 1 < layouts.size(); ++i) make(layouts[i], copy_of(captured));
    make(layouts.back(), std::move(captured));
  }

  bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m, const int64_t* symbols) override {
    // Ours, too, for as long as it runs: another call may find out which one stays.
    const std::shared_ptr<Runnable> first = ways_[0];
    if (ways_.size() == 1 || (symbols_ > 0 && !symbols)) return first->run(inputs, n, outputs, m, symbols);
    const std::span<const int64_t> sizes(symbols, symbols ? symbols_ : 0);
    int way = timed_.known(sizes);
    if (way < 0) {
      if (!first->run(inputs, n, outputs, m, symbols)) return false;
      if (twice_->now(inputs, n)) choose(inputs, n, m, symbols, sizes);
      return true;
    }
    const std::shared_ptr<Runnable> chosen = ways_[static_cast<size_t>(way)];
    if (symbols_ == 0) ways_ = {chosen};
    return chosen->run(inputs, n, outputs, m, symbols);
  }

  Report report() const override { return ways_[0]->report(); }

 private:
  static std::shared_ptr<TuningTime> share_of(const Options& options, size_t layouts) {
    auto time = std::make_shared<TuningTime>();
    time->seconds = static_cast<double>(options.autotune_seconds) / static_cast<double>(shares(layouts));
    return time;
  }

  void choose(PyObject* const* inputs, size_t n, size_t m, const int64_t* symbols, std::span<const int64_t> sizes) {
    std::vector<CallWay> ways;
    for (size_t w = 0; w < ways_.size(); ++w)
      ways.push_back({names_[w], [&, way = ways_[w]] {
                        Outputs unasked(m);
                        if (way->run(inputs, n, unasked.data(), m, symbols)) return true;
                        PyErr_Clear();
                        throw std::runtime_error("a graph that ran failed in another layout, or at another time");
                      }});
    try {
      timed_.choose(sizes, call_, ways);
    } catch (const std::exception&) {  // of the first way, which has run: at the next call, if at all
    }
  }

  const size_t symbols_;
  std::unique_ptr<RunTwice> twice_;
  TimedWays timed_;
  TimedCall call_;
  std::vector<const char*> names_;
  // Read and changed under the GIL. One: it is chosen.
  std::vector<std::shared_ptr<Runnable>> ways_;
};

}  // namespace

std::unique_ptr<Runnable> make_tuned_layout(Captured& captured, const Options& options, bool texts) {
  if (options.autotune_seconds <= 0 || options.convolution_layout != ConvolutionLayout::Auto ||
      options.freezing_discard_parameters)  // which the next way's first call would be without
    return nullptr;
  std::vector<ConvolutionLayout> layouts = driver::distinct_layouts(captured.graph, options);
  if (layouts.size() < 2 || options.autotune_seconds < shares(layouts.size())) return nullptr;
  auto twice = std::make_unique<RunTwice>(captured.graph);
  if (!twice->why_not().empty() || twice->on_gpu()) return nullptr;
  return std::make_unique<TunedLayout>(std::move(captured), std::move(layouts), std::move(twice), options, texts);
}

}  // namespace braze::launch
