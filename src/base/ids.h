// Typed 32-bit ids and the stores they index. An id is only meaningful together with the store that made it.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace braze {

template <class Tag>
struct Id {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t index = kNone;

  constexpr Id() = default;
  constexpr explicit Id(size_t i) : index(static_cast<uint32_t>(i)) {}
  constexpr bool valid() const { return index != kNone; }
  constexpr auto operator<=>(const Id&) const = default;
};

// A vector indexed by one kind of id.
template <class IdT, class T>
class Store {
 public:
  IdT add(T value) {
    items_.push_back(std::move(value));
    return IdT(items_.size() - 1);
  }
  T& operator[](IdT id) { return items_[id.index]; }
  const T& operator[](IdT id) const { return items_[id.index]; }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  IdT id_at(size_t i) const { return IdT(i); }

 private:
  std::vector<T> items_;
};

}  // namespace braze

template <class Tag>
struct std::hash<braze::Id<Tag>> {
  size_t operator()(braze::Id<Tag> id) const noexcept { return id.index; }
};
