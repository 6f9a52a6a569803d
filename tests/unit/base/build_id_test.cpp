#include "base/build_id.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace braze {
namespace {

TEST(BuildId, IsTheLinkersHash) {
  EXPECT_EQ(build_id().size(), 40u);  // SHA-1
  EXPECT_EQ(build_id().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(&build_id(), &build_id());
}

// In a process of its own: a process knows its id once.
TEST(BuildIdDeathTest, IsAlsoThatOfTheExtension) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        add_to_build_id(dlsym(RTLD_DEFAULT, "strtod"));
        std::exit(build_id().size() == 80 && build_id().substr(0, 40) != build_id().substr(40) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        add_to_build_id(reinterpret_cast<const void*>(&build_id));
        std::exit(build_id().size() == 40 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace braze
