// x86-64: AVX2 and AVX-512.
#include <array>

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

  bool has_fma() const override { return target.vector_bits > 128; }

  void set_attributes(llvm::Function& f) override {
    CpuBuilder::set_attributes(f);
    f.addFnAttr("prefer-vector-width", std::to_string(target.vector_bits));
    f.addFnAttr("min-legal-vector-width", std::to_string(target.vector_bits));
  }

  void fence_streams() override { B.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {}); }

  bool has_native_scale(Value* p) const override { return scale_id(p); }
  Value* native_scale(Value* p, Value* n, Value* gone) override {
    Value *otherwise = p, *kept = all_lanes(lanes(p));
    if (gone) {
      otherwise = llvm::Constant::getNullValue(p->getType());
      kept = B.CreateBitCast(B.CreateNot(gone), B.getIntNTy(lanes(p)));
      kept = B.CreateZExt(kept, B.getIntNTy(std::max(8u, lanes(p))));
    }
    llvm::SmallVector<Value*, 5> args{p, n, otherwise, kept};
    if (bits_of(p) == 512) args.push_back(B.getInt32(4));  // rounding as MXCSR says
    return B.CreateIntrinsic(scale_id(p), {}, args);
  }

  Value* native_reciprocal(Value* d) override {
    using namespace llvm;
    ID id = choose(d, {{Intrinsic::x86_avx512_rcp14_ps_128, Intrinsic::x86_avx512_rcp14_ps_256,
                        Intrinsic::x86_avx512_rcp14_ps_512, Intrinsic::x86_avx512_rcp14_pd_128,
                        Intrinsic::x86_avx512_rcp14_pd_256, Intrinsic::x86_avx512_rcp14_pd_512}});
    if (!id) return nullptr;
    return B.CreateIntrinsic(id, {}, {d, Constant::getNullValue(d->getType()), all_lanes(lanes(d))});
  }

  unsigned native_table(Value* x) const override {
    return target.vector_bits == 512 && lanes(x) == 16 && x->getType()->getScalarType()->isFloatTy() ? 32 : 0;
  }

  Value* pick(llvm::ArrayRef<float> table, Value* index) override {
    auto half = [&](size_t from) { return llvm::ConstantDataVector::get(context(), table.slice(from, 16)); };
    return B.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {}, {half(0), index, half(16)});
  }

 private:
  static unsigned bits_of(Value* x) { return lanes(x) * x->getType()->getScalarSizeInBits(); }
  // Of an instruction of AVX-512, given for f32 and then f64 in vectors of 128, 256 and 512 bits, the one for `x`; 0:
  // none.
  ID choose(Value* x, const std::array<ID, 6>& ids) const {
    Type* element = x->getType()->getScalarType();
    if (target.vector_bits != 512 || !is_vector(x) || !(element->isFloatTy() || element->isDoubleTy())) return 0;
    unsigned bits = bits_of(x);
    if (bits != 128 && bits != 256 && bits != 512) return 0;
    return ids[(element->isDoubleTy() ? 3 : 0) + (bits == 512 ? 2 : bits == 256 ? 1 : 0)];
  }
  ID scale_id(Value* p) const {
    using namespace llvm;
    return choose(p, {{Intrinsic::x86_avx512_mask_scalef_ps_128, Intrinsic::x86_avx512_mask_scalef_ps_256,
                       Intrinsic::x86_avx512_mask_scalef_ps_512, Intrinsic::x86_avx512_mask_scalef_pd_128,
                       Intrinsic::x86_avx512_mask_scalef_pd_256, Intrinsic::x86_avx512_mask_scalef_pd_512}});
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
  t.masked_load = t.masked_store = avx512 ? 1 : avx2 ? 4 : 0;  // narrow elements have no masked load before AVX-512
  t.gather = avx2 ? 4 : 0;
  t.scatter = avx512 ? 4 : 0;
  t.library_bits = avx2 ? 256 : 0;
  t.streaming_stores = true;
  t.strips = avx2;
  t.slow_thin_products = avx2;  // MKL, on AMD's most of all: from the caches, of few columns, of batches
  t.slow_bf16_products = !avx512;
  t.slow_f16_products = true;
}

void describe_x86(Target& t, const llvm::StringMap<bool>& features) {
  auto has = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!features.lookup(name)) return false;
    return true;
  };
  bool avx2 = has({"avx2", "fma", "f16c"});
  const bool avx512 = avx2 && has({"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  describe_x86_level(t, avx2, avx512);
  const bool amd = has({"sse4a"});
  if (!avx512 && amd) t.masked_store = 0;  // before AVX-512: a dozen cycles and more
  t.sweeps_columns = !(avx512 && amd);
  t.slow_f32_products = avx512 && amd;  // MKL's take AVX-512 on Intel's alone
  // What oneDNN asks for: its kernels for AVX-512 make bfloat16 of other instructions where they have to, but not
  // float16.
  const bool converts = has({"avxneconvert", "avxvnniint8"});
  t.slow_bf16_products = !avx512 && !converts;
  t.slow_f16_products = !has({"avx512fp16"}) && !converts;
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
