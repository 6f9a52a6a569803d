// Links objects into the process with JITLink. Code is never removed: a symbol is named by its content.
#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "codegen/codegen.h"
#include "codegen/cpu/runtime_symbols.h"
#include "codegen/llvm_headers.h"

namespace braze::codegen {
namespace {

namespace orc = llvm::orc;

class JitLoader final : public Loader {
 public:
  JitLoader()
      : session_(check(orc::SelfExecutorProcessControl::Create())),
        runtime_(session_.createBareJITDylib("runtime")),
        kernels_(session_.createBareJITDylib("kernels")),
        layer_(session_) {
    // A failed look-up is reported to our caller, not to the terminal.
    session_.setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });
    orc::SymbolMap symbols;
    for (const auto& [name, address] : cpu::runtime_symbols())
      symbols[session_.intern(name)] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    check(runtime_.define(orc::absoluteSymbols(std::move(symbols))));
    kernels_.addToLinkOrder(runtime_);
  }

  std::vector<void*> load(const std::string& object, const std::vector<std::string>& symbols) override {
    std::lock_guard lock(mutex_);
    std::vector<void*> out;
    for (const std::string& s : symbols)
      if (auto it = known_.find(s); it != known_.end()) out.push_back(it->second);
    if (out.size() == symbols.size()) return out;
    BRAZE_CHECK(out.empty(), "an object that repeats a kernel of another one");
    check(layer_.add(kernels_, llvm::MemoryBuffer::getMemBufferCopy(object)));
    for (const std::string& s : symbols) {
      auto found = check(session_.lookup({&kernels_}, session_.intern(s)));
      out.push_back(found.getAddress().toPtr<void*>());
      known_[s] = out.back();
    }
    return out;
  }

 private:
  static void check(llvm::Error e) {
    if (e) throw InternalError("linking generated code: " + llvm::toString(std::move(e)));
  }
  template <class T>
  static T check(llvm::Expected<T> v) {
    if (!v) throw InternalError("linking generated code: " + llvm::toString(v.takeError()));
    return std::move(*v);
  }

  std::mutex mutex_;
  orc::ExecutionSession session_;
  orc::JITDylib& runtime_;
  orc::JITDylib& kernels_;
  orc::ObjectLinkingLayer layer_;
  std::unordered_map<std::string, void*> known_;
};

}  // namespace

Loader& cpu_loader() {
  static auto* loader = new JitLoader;  // never destroyed: code may run until the process ends
  return *loader;
}

}  // namespace braze::codegen
