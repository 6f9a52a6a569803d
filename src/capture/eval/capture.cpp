// From a frame to a segment, by as many attempts as it takes.
#include "capture/eval/capture.h"

#include "capture/builtins/builtins.h"
#include "capture/eval/markers.h"
#include "capture/eval/translator.h"
#include "capture/guards/guard_eval.h"
#include "capture/vars/all.h"
#include "capture/vars/random_generator.h"

namespace braze::capture {
namespace {

void register_all() {
  static const bool done = [] {
    register_object_builtins();
    register_number_builtins();
    register_iteration_builtins();
    register_operator_builtins();
    register_pure_builtins();
    register_container_builtins();
    register_functional_builtins();
    register_class_builtins();
    register_torch_builtins();
    register_attention_builtins();
    register_user_kernel_builtins();
    register_logging_builtins();
    register_message_builtins();
    register_print_builtin();
    register_random_generator_builtins();
    register_lock_builtins();
    register_autograd_builtins();
    register_checkpoint_builtins();
    register_weak_reference_builtins();
    register_context_variable_builtins();
    register_random_builtins();
    register_numpy_builtins();
    register_numpy_random_builtins();
    register_legacy_constructors();
    register_torch_function_builtins();
    return true;
  }();
  (void)done;
}

}  // namespace

Segment capture(const FrameView& frame, const Options& options) {
  CapturingScope scope;
  register_all();
  Decisions decisions;
  for (;;) {
    try {
      Translator tr(frame, options, decisions);
      return tr.run();
    } catch (const MakeCall& call) {
      PyErr_Clear();
      if (!decisions.made_calls.insert(call.number).second)
        throw InternalError("a call of a cache that is made for real is tried again");
    } catch (const HideCompiling&) {
      PyErr_Clear();
      decisions = {.compiling = false};  // what was found out belongs to another path through the program
    } catch (const Restart& r) {
      PyErr_Clear();
      auto& stops = decisions.stops;
      constexpr size_t kMostAttempts = 200;
      // So many places where it can't stop: it ends before it begins.
      auto [stop, fresh] = stops.emplace(r.ordinal, r.stop);
      if (stops.size() > kMostAttempts)
        stops = {{1, r.stop}};
      else if (!fresh && r.stop.unseen && !stop->second.unseen)
        stop->second = r.stop;
      else if (!fresh)
        throw InternalError("the capture can't stop at step " + std::to_string(r.ordinal) + ": " +
                            std::string(name(r.stop.reason)) + " " + r.stop.detail);
    }
  }
}

}  // namespace braze::capture
