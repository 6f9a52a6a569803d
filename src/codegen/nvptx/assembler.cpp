#include "codegen/nvptx/assembler.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/check.h"

namespace braze::codegen::nvptx {
namespace {

struct Library {
  int (*create)(void**, uint32_t, const char**) = nullptr;
  int (*add)(void*, int, const void*, size_t, const char*) = nullptr;
  int (*complete)(void*) = nullptr;
  int (*cubin_size)(void*, size_t*) = nullptr;
  int (*cubin)(void*, void*) = nullptr;
  int (*log_size)(void*, size_t*) = nullptr;
  int (*log)(void*, char*) = nullptr;
  int (*destroy)(void**) = nullptr;
  std::string name = "driver";

  Library() {
    const char* forced = std::getenv("BRAZE_NVJITLINK");
    for (const char* major : {"13", "12"}) {
      std::string file = forced ? forced : std::string("libnvJitLink.so.") + major;
      void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!library) continue;
      bool all = true;
      auto find = [&](auto& function, const std::string& what) {
        void* p = dlsym(library, what.c_str());
        // Older libraries export the names with a version alone.
        for (int minor = 0; !p && minor <= 9; ++minor)
          p = dlsym(library, ("__" + what + "_" + major + "_" + std::to_string(minor)).c_str());
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(p);
        all = all && p;
      };
      find(create, "nvJitLinkCreate");
      find(add, "nvJitLinkAddData");
      find(complete, "nvJitLinkComplete");
      find(cubin_size, "nvJitLinkGetLinkedCubinSize");
      find(cubin, "nvJitLinkGetLinkedCubin");
      find(log_size, "nvJitLinkGetErrorLogSize");
      find(log, "nvJitLinkGetErrorLog");
      find(destroy, "nvJitLinkDestroy");
      if (!all) continue;
      name = file;
      return;
    }
  }
};

const Library& library() {
  static const Library* l = new Library;
  return *l;
}

constexpr int kPtx = 2;  // NVJITLINK_INPUT_PTX

}  // namespace

const std::string& assembler_name() { return library().name; }

std::string assemble(const std::string& ptx, const std::string& architecture) {
  const Library& l = library();
  if (l.name == "driver") return ptx;
  std::string option = "-arch=" + architecture;
  const char* options[] = {option.c_str()};
  void* handle = nullptr;
  auto fail = [&](const char* step, int code) {
    std::string words;
    size_t n = 0;
    if (handle && l.log_size(handle, &n) == 0 && n > 0) {
      words.resize(n);
      l.log(handle, words.data());
    }
    if (handle) l.destroy(&handle);
    throw InternalError(std::string("nvJitLink, ") + step + ", error " + std::to_string(code) + ": " + words + "\n" +
                        ptx);
  };
  // A library older than the GPU refuses its name: then the driver assembles.
  if (l.create(&handle, 1, options)) return ptx;
  if (int r = l.add(handle, kPtx, ptx.c_str(), ptx.size() + 1, "kernel")) fail("reading PTX", r);
  if (int r = l.complete(handle)) fail("assembling", r);
  size_t n = 0;
  if (int r = l.cubin_size(handle, &n)) fail("asking for the size", r);
  std::string cubin(n, '\0');
  if (int r = l.cubin(handle, cubin.data())) fail("fetching the code", r);
  l.destroy(&handle);
  return cubin;
}

}  // namespace braze::codegen::nvptx
