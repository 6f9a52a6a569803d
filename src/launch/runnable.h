// What the kinds of Runnable share.
#pragma once
#include "launch/compiled_graph.h"
#include "launch/launch.h"

namespace braze::launch {

// As make_runnable, in the layout that options and rules give.
std::unique_ptr<Runnable> make_laid_out(Captured captured, const Options& options, bool texts);
// Numbers of the inputs that callers hand in.
std::vector<uint32_t> inputs_without_constants(const graph::Graph& graph);
// `objects`: the inputs named by `given`, or all inputs.
void unpack_inputs(const std::vector<uint32_t>& given, PyObject* const* objects, size_t n, CompiledGraph::Call& call,
                   size_t inputs);
// New references to the first m results; throws python_error.
void wrap_outputs(CompiledGraph::Call& call, PyObject** outputs, size_t m);
// Results get the bits of what the program sees. Before they have a history.
void set_lazy(CompiledGraph::Call& call, const std::vector<trace::LazyBits>& lazy);
// Results that the program sees as views become views. After what they are views of has its history.
void make_views(CompiledGraph::Call& call, const std::vector<trace::OutputView>& views,
                const std::vector<trace::LazyBits>& lazy);
// Throws InternalError where more results are asked for than there are.
void check_asked(size_t asked, size_t outputs);
// What a call without gradients ends with: set_lazy, make_views, wrap_outputs.
void give_results(CompiledGraph::Call& call, const std::vector<trace::OutputView>& views,
                  const std::vector<trace::LazyBits>& lazy, PyObject** outputs, size_t m);
// Takes the timings and texts.
Report report_of(driver::Artefact& made, driver::Dumps dumps);
// Throws the Python exception that is set as python_error. Needs the GIL.
[[noreturn]] void throw_python_error();

}  // namespace braze::launch
