#include "capture/kept/kept_captures.h"

#include <algorithm>
#include <cstdlib>

#include "base/build_id.h"
#include "base/check.h"
#include "base/log_topics.h"
#include "base/strict.h"
#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/kept/segment_bytes.h"
#include "codegen/disk_cache.h"
#include "codegen/distinct_kernels.h"
#include "trace/global_state.h"

namespace braze::capture {

namespace {

constexpr const char* kFormat = "capture 3";
constexpr size_t kMostOfPlace = 16;  // of one place are kept: models of the same classes, sizes
constexpr size_t kMostBytes = 8 << 20;

// What the functions tell of the process that answer alike as long as it lives (torch_queries.def).
const std::string& process_facts() {
  static const std::string facts = [] {
    std::string out;
    for (const char* path : {"__version__", "version.git_version", "version.cuda"}) {
      PyObject* o = imported("torch", path, /*optional=*/true);
      Ref text = Ref::steal(o ? PyObject_Str(o) : nullptr);
      const char* s = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
      out += std::string(s ? s : "") + "\n";
    }
    out += Py_GetVersion();
    PyObject* built = imported("torch", "version.cuda", /*optional=*/true);
    if (built && built != Py_None) {
      Ref count = Ref::steal(PyObject_CallNoArgs(imported("torch", "cuda.device_count")));
      out += "\n" + std::to_string(count ? PyLong_AsLong(count.get()) : -1);
      const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
      out += std::string("\n") + (visible ? visible : "-");
    }
    PyErr_Clear();
    return out;
  }();
  return facts;
}

// Which GPUs there are, once the process uses them; before, empty. They have a say in which operators PyTorch chooses.
std::string gpus() {
  static PyObject* const initialised = imported("torch", "cuda.is_initialized");
  Ref yes = Ref::steal(PyObject_CallNoArgs(initialised));
  if (yes.get() != Py_True) return PyErr_Clear(), std::string();
  static const std::string names = [] {
    Ref count = Ref::steal(PyObject_CallNoArgs(imported("torch", "cuda.device_count")));
    std::string out;
    for (long i = 0, n = count ? PyLong_AsLong(count.get()) : 0; i < n; ++i)
      for (const char* asked : {"cuda.get_device_name", "cuda.get_device_capability"}) {
        Ref answer = Ref::steal(PyObject_CallFunction(imported("torch", asked), "l", i));
        Ref text = Ref::steal(answer ? PyObject_Str(answer.get()) : nullptr);
        const char* s = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
        out += std::string(s ? s : "?") + "\n";
      }
    PyErr_Clear();
    return out;
  }();
  return names;
}

bool uses_gpu(const graph::Graph& g) {
  return std::ranges::any_of(g.values(), [](const graph::Value& v) { return v.type.device.type == DeviceType::CUDA; });
}

std::vector<std::string> parts_of(const std::string& file) {
  ByteReader in(file);
  std::vector<std::string> out(in.count());
  for (std::string& s : out) s = in.text();
  return out;
}

}  // namespace

KeptCaptures::KeptCaptures(const FrameView& frame, const Options& options, const std::string& more)
    : frame_(frame), calls_(options.guard_speed) {
  // What a program tells capture of its own functions is not in what is kept.
  if (!options.disk_cache || options.freezing || build_id().empty() || has_program_rules()) return;
  ByteWriter key;
  key.text(kFormat), key.text(build_id()), key.text(process_facts()), key.text(more);
  const std::string gpus = braze::capture::gpus();
  knows_gpus_ = !gpus.empty();
  key.text(gpus);
  braze::describe(options, key);
  key.number(content_of_code(frame.bytecode->code));
  key.integer(frame.start), key.integer(frame.depth);
  for (bool flag : {frame.fixed_sizes, frame.gradients, frame.unbacked, frame.checks, frame.torch_level})
    key.number(flag);
  key.number(static_cast<uint64_t>(frame.dynamic));
  key.number(trace::global_state_of_capture());
  const int slots = frame.bytecode->num_locals_plus + frame.depth;
  for (int i = 0; i < slots; ++i) key.text(frame.slots[i] ? Py_TYPE(frame.slots[i])->tp_name : "");
  key_ = key.take();
  name_ = codegen::symbol_of("capture", key_);
}

bool KeptCaptures::find(const std::function<bool(Segment)>& take) const {
  if (name_.empty()) return false;
  auto file = codegen::DiskCache().find(name_, key_);
  if (!file) return false;
  try {
    for (const std::string& one : parts_of(*file)) {
      std::optional<Segment> segment = unpack_segment(one, frame_);
      PyErr_Clear();
      if (segment && take(std::move(*segment))) return true;
    }
  } catch (const std::exception&) {  // damaged: made anew
    PyErr_Clear();
  }
  return false;
}

std::string KeptCaptures::describe(const Segment& segment) const {
  if (name_.empty() || (!knows_gpus_ && uses_gpu(segment.captured.graph))) return {};
  try {
    std::string out = pack(segment, frame_, calls_);
    PyErr_Clear();
    return out;
  } catch (const NotKept& why) {
    PyErr_Clear();
    tell(Topic::Caches, "a capture is not kept on disk: " + why.what);
  } catch (const std::exception& e) {  // the capture itself is as good as ever
    PyErr_Clear();
    if (strict()) throw;
    tell(Topic::Caches, std::string("a capture is not kept on disk: ") + e.what());
  }
  return {};
}

void KeptCaptures::keep(const std::string& described) const {
  if (name_.empty() || described.empty()) return;
  codegen::DiskCache cache;
  std::vector<std::string> all;
  try {
    if (auto file = cache.find(name_, key_)) all = parts_of(*file);
  } catch (const std::exception&) {
    all.clear();
  }
  if (std::ranges::find(all, described) != all.end()) return;
  all.insert(all.begin(), described);
  // Code for the very sizes of a call, where there is some, before code for all.
  std::ranges::stable_partition(all, [](const std::string& one) { return !has_open_sizes(one); });
  if (all.size() > kMostOfPlace) all.resize(kMostOfPlace);
  ByteWriter out;
  size_t bytes = 0, n = 0;
  while (n < all.size() && (bytes += all[n].size()) <= kMostBytes) ++n;
  out.number(n);
  for (size_t i = 0; i < n; ++i) out.text(all[i]);
  cache.keep(name_, key_, out.take());
}

}  // namespace braze::capture
