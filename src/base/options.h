// Everything a user can choose, as one value: built at the edge, passed by const reference, hashed into cache keys.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace braze {

enum class Dynamic : uint8_t { Auto, Yes, No };

// Options with a few named values: the names, in the order of the values, are what the user writes.
enum class Rng : uint8_t { Philox, Eager };
enum class Codegen : uint8_t { Llvm, Triton, Cpp };
enum class ConvolutionLayout : uint8_t { Auto, Recorded, ChannelsLast };
inline constexpr std::array<std::string_view, 2> names_of(Rng) { return {"philox", "eager"}; }
inline constexpr std::array<std::string_view, 3> names_of(Codegen) { return {"llvm", "triton", "cpp"}; }
inline constexpr std::array<std::string_view, 3> names_of(ConvolutionLayout) {
  return {"auto", "recorded", "channels_last"};
}

struct Options {
#define BRAZE_OPTION(type, name, init, text) type name = init;
#include "base/options.def"
#undef BRAZE_OPTION
  // Not the user's choice: whether this PyTorch's casts to float8_e4m3fn make the greatest number of what is out of
  // range, or NaN.
  bool float8_saturates = true;
  // Nor this one: whether this PyTorch has oneDNN's operators for packed weights.
  bool packs_weights = false;
};

// Every option, for keys of what is kept on disk.
void describe(const Options& options, ByteWriter& out);
// Hash of every option that changes generated code.
uint64_t hash_of(const Options& options);

}  // namespace braze
