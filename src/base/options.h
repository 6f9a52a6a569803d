// Everything a user can choose, as one value: built at the edge, passed by const reference, hashed into cache keys.
#pragma once
#include <cstdint>
#include <string>

namespace braze {

enum class Dynamic : uint8_t { Auto, Yes, No };

struct Options {
#define BRAZE_OPTION(type, name, init, text) type name = init;
#include "base/options.def"
#undef BRAZE_OPTION
};

// Hash of every option that changes generated code.
uint64_t hash_of(const Options& options);

}  // namespace braze
