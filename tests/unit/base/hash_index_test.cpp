#include "base/hash_index.h"

#include <gtest/gtest.h>

namespace braze {
namespace {

TEST(HashIndex, FindsByHashAndContent) {
  HashIndex index;
  std::vector<int> items;
  auto find = [&](uint64_t hash, int value) { return index.find(hash, [&](uint32_t i) { return items[i] == value; }); };
  EXPECT_EQ(find(7, 1), HashIndex::kNone);
  for (int k = 0; k < 5000; ++k) {
    items.push_back(k);
    index.insert(static_cast<uint64_t>(k % 13), static_cast<uint32_t>(k));  // many of one hash
  }
  for (int k = 0; k < 5000; ++k) {
    EXPECT_EQ(find(static_cast<uint64_t>(k % 13), k), static_cast<uint32_t>(k));
    EXPECT_EQ(find(static_cast<uint64_t>((k + 1) % 13), k), HashIndex::kNone);
  }
  index.clear();
  EXPECT_EQ(find(0, 0), HashIndex::kNone);
  index.insert(0, 0);
  EXPECT_EQ(find(0, 0), 0u);
}

}  // namespace
}  // namespace braze
