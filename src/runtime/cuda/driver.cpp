#include "runtime/cuda/driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "base/fork_mutex.h"

namespace braze::runtime::cuda {
namespace {

using Result = int;  // CUresult; 0 is success
using Context = void*;
constexpr Result kInvalidContext = 201, kOutOfMemory = 2;
// CU_DEVICE_ATTRIBUTE_*: COMPUTE_CAPABILITY_*; MULTIPROCESSOR_COUNT, MAX_THREADS_PER_MULTIPROCESSOR,
// MAX_REGISTERS_PER_BLOCK, MAX_SHARED_MEMORY_PER_BLOCK.
constexpr int kMajor = 75, kMinor = 76, kMultiprocessors = 16, kThreads = 39, kRegisters = 12, kShared = 8;
constexpr int kMostShared = 8;                     // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr uint32_t kSharedByDefault = 48 << 10;    // a kernel that wants more says so
constexpr unsigned kPortable = 1, kDeviceMap = 2;  // CU_MEMHOSTALLOC_*

[[noreturn]] void unavailable(const std::string& why) { throw Unsupported(Reason::UnsupportedTensor, why); }

// CUlaunchAttribute with CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, and CUlaunchConfig.
struct LaunchAttribute {
  int id = 6;
  char padding[4] = {};
  union {
    char bytes[64];
    int allowed;
  } value = {};
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned count;
};

struct Api {
  Result (*init)(unsigned);
  Result (*device_get)(int*, int);
  Result (*device_attribute)(int*, int, int);
  Result (*retain)(Context*, int);
  Result (*set_current)(Context);
  Result (*get_current)(Context*);
  Result (*load_data)(void**, const void*);
  Result (*get_function)(void**, void*, const char*);
  Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  Result (*launch_with)(const LaunchConfig*, void*, void**, void**);  // nullptr: a driver without it
  Result (*set_attribute)(void*, int, int);
  Result (*host_alloc)(void**, size_t, unsigned);
  Result (*device_name)(char*, int, int);
  Result (*driver_version)(int*);
  Result (*is_capturing)(void*, int*);
  Result (*event_create)(void**, unsigned);
  Result (*event_record)(void*, void*);
  Result (*event_wait)(void*);
  Result (*event_elapsed)(float*, void*, void*);
  Result (*event_destroy)(void*);
  Result (*error_string)(Result, const char**);
  std::string missing;  // why there is no driver

  Api() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      missing = "NVIDIA's driver library libcuda.so.1 cannot be loaded: " + std::string(dlerror());
      return;
    }
    auto find = [&](auto& function, const char* name) {
      void* p = dlsym(library, name);
      if (!p && missing.empty())
        missing = "libcuda.so.1 has no function " + std::string(name) + ": the driver is too old";
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(p);
    };
    find(init, "cuInit");
    find(device_get, "cuDeviceGet");
    find(device_attribute, "cuDeviceGetAttribute");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    find(get_current, "cuCtxGetCurrent");
    find(load_data, "cuModuleLoadData");
    find(get_function, "cuModuleGetFunction");
    find(launch, "cuLaunchKernel");
    find(set_attribute, "cuFuncSetAttribute");
    find(host_alloc, "cuMemHostAlloc");
    find(device_name, "cuDeviceGetName");
    find(driver_version, "cuDriverGetVersion");
    find(is_capturing, "cuStreamIsCapturing");
    find(event_create, "cuEventCreate");
    find(event_record, "cuEventRecord");
    find(event_wait, "cuEventSynchronize");
    find(event_elapsed, "cuEventElapsedTime");
    find(event_destroy, "cuEventDestroy_v2");
    find(error_string, "cuGetErrorString");
    launch_with = reinterpret_cast<decltype(launch_with)>(dlsym(library, "cuLaunchKernelEx"));
    if (missing.empty())
      if (Result r = init(0)) missing = "NVIDIA's driver does not start: " + words(r);
  }
  std::string words(Result r) const {
    const char* text = nullptr;
    if (error_string && error_string(r, &text) == 0 && text) return text;
    return "error " + std::to_string(r);
  }
};

const Api& api() {
  static const Api* a = new Api;
  if (!a->missing.empty()) unavailable(a->missing);
  return *a;
}

void check(Result r, const std::string& doing) {
  if (r) unavailable(doing + ": " + api().words(r) + (r == kOutOfMemory ? " (GPU memory)" : ""));
}

int handle(int device) {
  int d = 0;
  check(api().device_get(&d, device), "GPU " + std::to_string(device));
  return d;
}

// Makes the device's primary context the thread's own while it lives.
class Use {
 public:
  explicit Use(int device) {
    static std::mutex mutex;
    static std::map<int, Context> contexts;
    Context context = nullptr;
    {
      std::lock_guard lock(mutex);
      auto [it, fresh] = contexts.try_emplace(device);
      if (fresh) check(api().retain(&it->second, handle(device)), "the context of GPU " + std::to_string(device));
      context = it->second;
    }
    check(api().get_current(&before_), "the current GPU context");
    if (before_ == context) return;
    check(api().set_current(context), "GPU " + std::to_string(device));
    changed_ = true;
  }
  ~Use() {
    if (changed_) api().set_current(before_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Context before_ = nullptr;
  bool changed_ = false;
};

}  // namespace

const Target& target(int device) {
  static auto* mutex = new ForkMutex;
  static auto* known = new std::map<int, Target>;
  std::lock_guard lock(*mutex);
  if (auto it = known->find(device); it != known->end()) return it->second;
  int d = handle(device);
  auto attribute = [&](int which) {
    int value = 0;
    check(api().device_attribute(&value, which, d), "the architecture of the GPU");
    return value;
  };
  Target t = nvidia_gpu(attribute(kMajor) * 10 + attribute(kMinor));
  t.multiprocessors = attribute(kMultiprocessors);
  t.threads = attribute(kThreads);
  t.registers = attribute(kRegisters);
  t.shared_bytes = attribute(kShared);
  return known->emplace(device, std::move(t)).first->second;
}

int compute_capability(int device) { return target(device).sm; }

void* load(const std::string& image, const std::string& symbol, uint32_t shared, int device) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, void*> known;  // a symbol is named by its content
  std::lock_guard lock(mutex);
  auto key = std::make_pair(device, symbol);
  if (auto it = known.find(key); it != known.end()) return it->second;
  Use use(device);
  void *module = nullptr, *function = nullptr;
  check(api().load_data(&module, image.c_str()), "loading a kernel onto GPU " + std::to_string(device));
  check(api().get_function(&function, module, symbol.c_str()), "finding kernel " + symbol);
  if (shared > kSharedByDefault)
    check(api().set_attribute(function, kMostShared, static_cast<int>(shared)), "shared memory for kernel " + symbol);
  known[key] = function;
  return function;
}

void launch(void* function, const Grid& grid, void* stream, void** parameters, int device) {
  const Api& a = api();
  auto once = [&] {
    if (!grid.early || !a.launch_with)
      return a.launch(function, grid.blocks, 1, 1, grid.threads, 1, 1, grid.shared, stream, parameters, nullptr);
    LaunchAttribute early;
    early.value.allowed = 1;
    LaunchConfig config{{grid.blocks, 1, 1}, {grid.threads, 1, 1}, grid.shared, stream, &early, 1};
    return a.launch_with(&config, function, parameters, nullptr);
  };
  Result r = grid.elsewhere ? kInvalidContext : once();
  if (r == kInvalidContext) {
    Use use(device);
    r = once();
  }
  if (r) check(r, "launching a kernel");
}

namespace {

class Event {
 public:
  Event() { check(api().event_create(&handle_, 0), "an event"); }
  ~Event() { api().event_destroy(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void* get() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

}  // namespace

std::string identity(int device) {
  char name[256] = {};
  int version = 0;
  check(api().device_name(name, sizeof name, handle(device)), "the name of the GPU");
  check(api().driver_version(&version), "the version of the driver");
  return std::string(name) + ", driver " + std::to_string(version);
}

bool is_recording(void* stream, int device) {
  Use use(device);
  int status = 0;
  check(api().is_capturing(stream, &status), "asking a stream");
  return status != 0;
}

double milliseconds(void* stream, int device, const std::function<void()>& run) {
  Use use(device);
  Event first, last;
  check(api().event_record(first.get(), stream), "recording an event");
  run();
  check(api().event_record(last.get(), stream), "recording an event");
  check(api().event_wait(last.get()), "running a kernel");
  float passed = 0;
  check(api().event_elapsed(&passed, first.get(), last.get()), "reading events");
  return passed;
}

namespace {

volatile uint32_t* word() {
  static volatile uint32_t* w = [] {
    // Of any context: where the process has used no GPU yet, of the first one's.
    Context current = nullptr;
    check(api().get_current(&current), "the current GPU context");
    std::optional<Use> first;
    if (!current) first.emplace(0);
    void* p = nullptr;
    check(api().host_alloc(&p, sizeof(uint32_t), kPortable | kDeviceMap), "a word of pinned memory");
    *static_cast<volatile uint32_t*>(p) = 0;
    return static_cast<volatile uint32_t*>(p);
  }();
  return w;
}

}  // namespace

void* error_word() { return const_cast<uint32_t*>(word()); }

bool take_error() {
  volatile uint32_t* w = word();
  if (!*w) return false;
  *w = 0;
  return true;
}

}  // namespace braze::runtime::cuda
