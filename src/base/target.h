// What is compiled for: one machine as a value, which passes, schedule and code generators ask what it can do. Who
// states what a device's type means (which memory a buffer lies in, PyTorch's rules per device) asks the device.
#pragma once
#include <cstdint>
#include <string>

namespace braze {

struct Target {
  enum class Architecture : uint8_t { X86_64, AArch64, Nvidia };
  Architecture architecture = Architecture::X86_64;
  std::string model;        // as LLVM calls the processor: "znver4", "x86-64-v3", "sm_90"
  std::string features;     // of a CPU that is described: what it has beyond its model, as LLVM writes it
  bool host = false;        // the CPU of this process, with all features that it has
  std::string unavailable;  // why this process cannot run code for it; empty: it can
  bool is_gpu() const { return architecture == Architecture::Nvidia; }

  int vector_bits = 128;  // of the widest vector register; of a GPU's warp
  int lanes(int element_bytes) const { return vector_bits / 8 / element_bytes; }

  // CPU: from how many bytes on elements of a vector are loaded under a mask, stored so (in not much more time than
  // without), gathered and scattered by an instruction; 0: no elements are.
  int masked_load = 0, masked_store = 0, gather = 0, scatter = 0;
  bool loads_masked(int element_bytes) const { return masked_load && element_bytes >= masked_load; }
  bool stores_masked(int element_bytes) const { return masked_store && element_bytes >= masked_store; }
  bool gathers(int element_bytes) const { return gather && element_bytes >= gather; }
  bool scatters(int element_bytes) const { return scatter && element_bytes >= scatter; }
  // Sums of products are made at several points at once (codegen/cpu/strips.cpp), each by one instruction a product: as
  // fast as a library's, which takes 15 to 40 us before it begins.
  bool strips = false;
  // Columns are summed a few rows at a time (codegen/cpu/sweep.cpp): long runs of memory come in faster than short ones
  // of more rows.
  bool sweeps_columns = true;
  bool streaming_stores = false;  // whole vectors can be stored past the caches
  int library_bits = 0;  // of the shortest vectors for which PyTorch's library has elementary functions; 0: none
  int64_t cache_bytes = int64_t{32} << 20;  // of the last level

  // GPU
  int sm = 0;  // compute capability, 90 for 9.0
  int multiprocessors = 0;
  int threads = 0;                                    // that one multiprocessor holds
  int registers = 0;                                  // of 32 bits, for one block
  int shared_bytes = 0;                               // memory of one block, as much as each launch gets without asking
  bool can_launch_early() const { return sm >= 90; }  // a kernel can wait by itself for what precedes it
  // Narrow columns up to which a product is best made here from small matrices that the hardware multiplies at once; 0:
  // it has no such instruction.
  int most_product_columns() const { return sm >= 80 ? 8 : 0; }
  bool has_bf16() const { return sm >= 80; }  // conversions and maxima of bfloat16, two conversions at once
  bool has_float8() const {
    return sm >= 90;
  }  // conversions of e4m3fn and e5m2 (in the version of PTX that is written)

  // The libraries for products and convolutions that PyTorch calls on it.
  bool fuses_epilogues = false;            // a product applies bias and activation to what it still holds in registers
  bool adds_matrix_free = false;           // a product adds a whole matrix at no cost
  bool biases_convolutions_apart = false;  // the bias takes a pass of its own over the result
  // Products and convolutions of half types are far slower than float32's: it has no instructions for them.
  bool slow_bf16_products = false, slow_f16_products = false;
  bool slow_f32_products = false;      // float32's: PyTorch's has none of its widest instructions, which oneDNN's has
  bool slow_thin_products = false;     // a row times a matrix takes longer than reading the matrix does
  bool slow_odd_rows = false;          // so do products of half types with rows of other than a multiple of 16 bytes
  bool prefers_channels_last = false;  // convolutions
  bool slow_depthwise = false;         // of each channel by itself: far below the speed of memory

  // Every field that code depends on, for keys of what is kept and for people.
  std::string text() const;
};

// An NVIDIA GPU of which nothing but its compute capability is known.
Target nvidia_gpu(int sm);
// The GPU for which texts are made where there is none.
Target h200();

}  // namespace braze
