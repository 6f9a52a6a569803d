// A 64-bit streaming hash (splitmix64 finaliser over a running state) for in-memory keys and cache file names.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace braze {

class Hasher {
 public:
  void add(std::string_view bytes) {
    add(static_cast<uint64_t>(bytes.size()));
    while (!bytes.empty()) {
      uint64_t word = 0;
      size_t n = bytes.size() < 8 ? bytes.size() : 8;
      std::memcpy(&word, bytes.data(), n);
      add(word);
      bytes.remove_prefix(n);
    }
  }
  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  void add(T v) {
    mix(static_cast<uint64_t>(v));
  }
  void add(double v) {
    uint64_t bits;
    std::memcpy(&bits, &v, 8);
    mix(bits);
  }
  uint64_t value() const { return state_; }

 private:
  void mix(uint64_t v) {
    uint64_t z = state_ + 0x9e3779b97f4a7c15ull + v;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    state_ = z ^ (z >> 31);
  }
  uint64_t state_ = 0x243f6a8885a308d3ull;
};

}  // namespace braze
