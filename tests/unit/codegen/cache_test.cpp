// The disk cache: what is found again, and what must be refused.
#include "codegen/cpu/cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace braze::codegen::cpu {
namespace {

namespace fs = std::filesystem;

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/braze_cache_XXXXXX";
    root_ = mkdtemp(name);
    folder_ = root_ + "/a/b";
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string root_, folder_;
};

TEST_F(Cache, KeepsAndFinds) {
  DiskCache c(folder_);
  ASSERT_TRUE(c.usable());
  EXPECT_FALSE(c.find("k", "key"));
  c.keep("k", "key", "object");
  EXPECT_EQ(DiskCache(folder_).find("k", "key"), "object");
  EXPECT_FALSE(c.find("k", "another key"));
  struct stat s;
  ASSERT_EQ(stat(folder_.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((folder_ + "/k.o").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
}

TEST_F(Cache, IgnoresDamageAndReplacesIt) {
  DiskCache c(folder_);
  c.keep("k", "key", "object");
  std::string path = folder_ + "/k.o";
  auto size = static_cast<long>(fs::file_size(path));
  for (long at = 0; at < size; ++at) {
    c.keep("k", "key", "object");
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(at);
    int byte = f.get();
    f.seekp(at);
    f.put(static_cast<char>(byte ^ 0x41));
    f.close();
    EXPECT_FALSE(c.find("k", "key")) << "byte " << at;
  }
  c.keep("k", "key", "object");
  fs::resize_file(path, static_cast<size_t>(size - 1));
  EXPECT_FALSE(c.find("k", "key"));
  c.keep("k", "key", "object");
  EXPECT_TRUE(c.find("k", "key"));
}

TEST_F(Cache, RefusesWhatOthersMayWrite) {
  DiskCache c(folder_);
  c.keep("k", "key", "object");
  chmod((folder_ + "/k.o").c_str(), 0666);
  EXPECT_FALSE(c.find("k", "key"));
  chmod((folder_ + "/k.o").c_str(), 0600);
  EXPECT_TRUE(c.find("k", "key"));
  fs::rename(folder_ + "/k.o", folder_ + "/real.o");
  fs::create_symlink(folder_ + "/real.o", folder_ + "/k.o");
  EXPECT_FALSE(c.find("k", "key"));
  chmod(folder_.c_str(), 0777);
  EXPECT_FALSE(DiskCache(folder_).usable());
  EXPECT_FALSE(DiskCache("").usable());
  EXPECT_FALSE(DiskCache("/dev/null/x").usable());
}

TEST_F(Cache, OldestGoFirst) {
  DiskCache c(folder_, 4000);
  std::string object(900, 'x');
  for (int i = 0; i < 6; ++i) {
    c.keep("k" + std::to_string(i), "key", object);
    timespec times[2] = {{1000 + i, 0}, {1000 + i, 0}};
    utimensat(AT_FDCWD, (folder_ + "/k" + std::to_string(i) + ".o").c_str(), times, 0);
  }
  c.trim();
  EXPECT_FALSE(c.find("k0", "key"));
  EXPECT_FALSE(c.find("k1", "key"));
  EXPECT_TRUE(c.find("k5", "key"));
  EXPECT_TRUE(c.find("k4", "key"));
}

}  // namespace
}  // namespace braze::codegen::cpu
