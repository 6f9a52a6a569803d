// x86-64: AVX2 and AVX-512.
#include "base/check.h"
#include "codegen/cpu/architecture.h"

// Declared weak: a build for another architecture leaves LLVM's backend out (cmake/Folders.cmake).
extern "C" {
[[gnu::weak]] void LLVMInitializeX86TargetInfo();
[[gnu::weak]] void LLVMInitializeX86Target();
[[gnu::weak]] void LLVMInitializeX86TargetMC();
[[gnu::weak]] void LLVMInitializeX86AsmPrinter();
}

namespace braze::codegen {
namespace cpu {
namespace {

using llvm::Intrinsic::ID;

class X86Builder final : public CpuBuilder {
 public:
  using CpuBuilder::CpuBuilder;

  void set_attributes(llvm::Function& f) override {
    CpuBuilder::set_attributes(f);
    f.addFnAttr("prefer-vector-width", std::to_string(target.vector_bits));
    f.addFnAttr("min-legal-vector-width", std::to_string(target.vector_bits));
  }

  void fence_streams() override { B.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {}); }

  Value* native_scale(Value* p, Value* n) override {
    unsigned count = lanes(p);
    if (!has_floats(p, 4)) return nullptr;
    ID id = count == 16  ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_512
            : count == 8 ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_256
                         : llvm::Intrinsic::x86_avx512_mask_scalef_ps_128;
    llvm::SmallVector<Value*, 5> args{p, n, p, all_lanes(count)};
    if (count == 16) args.push_back(B.getInt32(4));  // rounding as MXCSR says
    return B.CreateIntrinsic(id, {}, args);
  }

  Value* native_reciprocal(Value* d) override {
    unsigned count = lanes(d);
    if (!has_floats(d, 4)) return nullptr;
    ID id = count == 16  ? llvm::Intrinsic::x86_avx512_rcp14_ps_512
            : count == 8 ? llvm::Intrinsic::x86_avx512_rcp14_ps_256
                         : llvm::Intrinsic::x86_avx512_rcp14_ps_128;
    return B.CreateIntrinsic(id, {}, {d, llvm::Constant::getNullValue(d->getType()), all_lanes(count)});
  }

  unsigned native_table(Value* x) const override { return has_floats(x, 16) ? 32 : 0; }

  Value* pick(llvm::ArrayRef<float> table, Value* index) override {
    auto half = [&](size_t from) { return llvm::ConstantDataVector::get(context(), table.slice(from, 16)); };
    return B.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {}, {half(0), index, half(16)});
  }

 private:
  // AVX-512 on vectors of `least` to 16 floats.
  bool has_floats(Value* x, unsigned least) const {
    return target.vector_bits == 512 && lanes(x) >= least && lanes(x) <= 16 &&
           x->getType()->getScalarType()->isFloatTy();
  }
  Value* all_lanes(unsigned count) { return count == 16 ? B.getInt16(0xffff) : B.getInt8(0xff); }
};

void initialise_x86() {
  BRAZE_CHECK(LLVMInitializeX86Target, "this build has no code generator for x86-64");
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
}

void describe_x86_level(Target& t, bool avx2, bool avx512) {
  t.vector_bits = avx512 ? 512 : avx2 ? 256 : 128;
  t.masked_load = avx512 ? 1 : avx2 ? 4 : 0;  // narrow elements have no masked load before AVX-512
  t.gather = avx2 ? 4 : 0;
  t.scatter = avx512 ? 4 : 0;
  t.library_bits = avx2 ? 256 : 0;
  t.streaming_stores = true;
}

void describe_x86(Target& t, const llvm::StringMap<bool>& features) {
  auto has = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!features.lookup(name)) return false;
    return true;
  };
  bool avx2 = has({"avx2", "fma", "f16c"});
  describe_x86_level(t, avx2, avx2 && has({"avx512f", "avx512bw", "avx512dq", "avx512vl"}));
}

}  // namespace

const Architecture& x86() {
  static const Architecture row{
      "x86_64-unknown-linux-gnu", initialise_x86,
      [](llvm::Module& m, const llvm::TargetMachine& machine, const Target& t) -> std::unique_ptr<CpuBuilder> {
        return std::make_unique<X86Builder>(m, machine, t);
      },
      describe_x86, x86_relocations()};
  return row;
}

}  // namespace cpu

Target x86_target(CpuLevel level) {
  Target t;
  t.architecture = Target::Architecture::X86_64;
  bool avx512 = level == CpuLevel::Avx512;
  t.model = avx512 ? "x86-64-v4" : "x86-64-v3";
  // Of the machines with AVX2 those of Intel's gather by an instruction.
  if (!avx512) t.features = "+fast-gather";
  if (!includes(host_cpu(), level)) t.unavailable = "this CPU does not have the instructions of " + t.model;
  cpu::describe_x86_level(t, true, avx512);
  return t;
}

}  // namespace braze::codegen
