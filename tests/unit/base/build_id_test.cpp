#include "base/build_id.h"

#include <gtest/gtest.h>

namespace braze {
namespace {

TEST(BuildId, IsTheLinkersHash) {
  EXPECT_EQ(build_id().size(), 40u);  // SHA-1
  EXPECT_EQ(build_id().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(&build_id(), &build_id());
}

}  // namespace
}  // namespace braze
