// The disk cache: what is found again, and what must be refused.
#include "codegen/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace braze::codegen {
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

TEST_F(Cache, KeepingBoundsTheFolder) {
  constexpr size_t kMiB = 1 << 20;
  DiskCache c(folder_, 8 * kMiB);
  std::string object(4 * kMiB, 'x');
  for (int i = 0; i < 40; ++i) c.keep("k" + std::to_string(i), "key", object);
  size_t bytes = 0;
  for (auto& entry : fs::directory_iterator(folder_)) bytes += entry.file_size();
  EXPECT_LE(bytes, (64 + 8) * kMiB);
  EXPECT_TRUE(c.find("k39", "key"));
}

TEST_F(Cache, ForeignFilesAreNotObjects) {
  DiskCache c(folder_);
  auto put = [&](const std::string& bytes) {
    std::ofstream(folder_ + "/k.o", std::ios::binary) << bytes, chmod((folder_ + "/k.o").c_str(), 0600);
  };
  for (const std::string& bytes :
       {std::string(), std::string("BRAZEOBJ"), std::string(4096, '\0'), std::string(4096, 'x')}) {
    put(bytes);
    EXPECT_FALSE(c.find("k", "key"));
  }
  c.keep("k", "key", "object");
  EXPECT_EQ(c.find("k", "key"), "object");
  fs::remove(folder_ + "/k.o");
  fs::create_directory(folder_ + "/k.o");  // can't be replaced by a file: neither found nor kept
  c.keep("k", "key", "object");
  EXPECT_FALSE(c.find("k", "key"));
}

TEST_F(Cache, AnUnwritableFolderIsOnlySlow) {
  DiskCache c(folder_);
  fs::remove_all(folder_);
  c.keep("k", "key", "object");
  EXPECT_FALSE(c.find("k", "key"));
  c.trim();
  std::ofstream(root_ + "/file") << "x";
  EXPECT_FALSE(DiskCache(root_ + "/file/below").usable());
}

// Readers see whole entries of whoever wrote last, never a mixture.
TEST_F(Cache, ProcessesWriteAtOnce) {
  auto object_of = [](int who, int round) {
    return std::string(static_cast<size_t>(1000 + 977 * who + round), static_cast<char>('a' + who));
  };
  std::vector<pid_t> children;
  for (int who = 0; who < 4; ++who) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      DiskCache c(folder_);
      int wrong = !c.usable();
      for (int round = 0; round < 100; ++round) {
        c.keep("k", "key", object_of(who, round));
        auto got = c.find("k", "key");
        wrong += !got || got->find_first_not_of((*got)[0]) != std::string::npos;
        if (round == 50) c.trim();
      }
      _exit(wrong ? 1 : 0);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "a part was left over";
}

}  // namespace
}  // namespace braze::codegen
