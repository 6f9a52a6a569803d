#include "codegen/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/background.h"
#include "base/fork_mutex.h"
#include "base/hash.h"

namespace braze::codegen {
namespace {

constexpr char kMagic[8] = {'B', 'R', 'A', 'Z', 'E', 'O', 'B', 'J'};
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMost = 64 << 20;  // no object is larger

struct Header {
  char magic[8];
  uint64_t version, key_bytes, object_bytes, checksum;
};

uint64_t checksum_of(std::string_view key, std::string_view object) {
  Hasher h;
  h.add(key);
  h.add(object);
  return h.value();
}

std::string default_folder() {
  if (const char* d = std::getenv("BRAZE_CACHE_DIR"); d && *d) return d;
  if (const char* d = std::getenv("XDG_CACHE_HOME"); d && *d == '/') return std::string(d) + "/braze";
  if (const char* d = std::getenv("HOME"); d && *d == '/') return std::string(d) + "/.cache/braze";
  return "";
}

bool ours(const struct stat& s) { return s.st_uid == geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0; }

bool make_folder(const std::string& path) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at);
    std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES) return false;
    if (at != std::string::npos) ++at;
  }
  struct stat s;
  return lstat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && ours(s);
}

struct Used {
  ForkMutex lock;
  std::set<std::string> paths;
};
Used& used() {
  static auto* u = new Used();
  return *u;
}
void note_used(std::string path) {
  std::lock_guard hold(used().lock);
  used().paths.insert(std::move(path));
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool read(void* into, size_t n) {
    auto* p = static_cast<char*>(into);
    while (n) {
      ssize_t got = ::read(fd_, p, n);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      p += got;
      n -= static_cast<size_t>(got);
    }
    return true;
  }
  bool write(const void* from, size_t n) {
    auto* p = static_cast<const char*>(from);
    while (n) {
      ssize_t put = ::write(fd_, p, n);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return false;
      p += put;
      n -= static_cast<size_t>(put);
    }
    return true;
  }

 private:
  int fd_;
};

}  // namespace

DiskCache::DiskCache() : DiskCache(default_folder()) {}

DiskCache::DiskCache(std::string folder, int64_t limit) : folder_(std::move(folder)), limit_(limit) {
  if (!folder_.empty() && !make_folder(folder_)) folder_.clear();
}

std::optional<std::string> DiskCache::find(std::string_view name, std::string_view key) const {
  if (!usable()) return std::nullopt;
  File f(open((folder_ + "/" + std::string(name) + ".o").c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat s;
  Header h;
  if (!f || fstat(f.fd(), &s) != 0 || !S_ISREG(s.st_mode) || !ours(s) || !f.read(&h, sizeof h)) return std::nullopt;
  if (std::memcmp(h.magic, kMagic, 8) != 0 || h.version != kVersion || h.key_bytes != key.size() ||
      h.object_bytes > kMost)
    return std::nullopt;
  if (static_cast<uint64_t>(s.st_size) != sizeof h + h.key_bytes + h.object_bytes) return std::nullopt;
  std::string found(h.key_bytes, 0), object(h.object_bytes, 0);
  if (!f.read(found.data(), found.size()) || found != key || !f.read(object.data(), object.size())) return std::nullopt;
  if (checksum_of(key, object) != h.checksum) return std::nullopt;
  futimens(f.fd(), nullptr);  // used: trimming goes by age
  note_used(folder_ + "/" + std::string(name) + ".o");
  return object;
}

void DiskCache::keep(std::string_view name, std::string_view key, std::string_view object) {
  if (!usable()) return;
  static std::atomic<uint64_t> counter{0};
  std::string path = folder_ + "/" + std::string(name) + ".o";
  std::string part =
      folder_ + "/." + std::string(name) + "." + std::to_string(getpid()) + "." + std::to_string(counter++);
  {
    File f(open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!f) return;
    Header h{{}, kVersion, key.size(), object.size(), checksum_of(key, object)};
    std::memcpy(h.magic, kMagic, 8);
    if (!f.write(&h, sizeof h) || !f.write(key.data(), key.size()) || !f.write(object.data(), object.size())) {
      unlink(part.c_str());
      return;
    }
  }
  if (rename(part.c_str(), path.c_str()) != 0) {
    unlink(part.c_str());
    return;
  }
  note_used(std::move(path));
  static std::atomic<int64_t> left{0};
  if ((left -= static_cast<int64_t>(sizeof(Header) + key.size() + object.size())) < 0) {
    left = int64_t{64} << 20;
    // Asking for the age of thousands of files takes milliseconds, which nobody needs to wait for.
    auto* trimming = new Background([cache = *this] { cache.trim(); }, true);
    if (std::thread::hardware_concurrency() < 2) trimming->wait();
  }
}

std::vector<std::string> used_cache_files() {
  std::lock_guard hold(used().lock);
  return {used().paths.begin(), used().paths.end()};
}

void DiskCache::trim() const {
  if (!usable()) return;
  DIR* dir = opendir(folder_.c_str());
  if (!dir) return;
  struct Entry {
    std::string path;
    int64_t bytes;
    struct timespec used;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  while (dirent* e = readdir(dir)) {
    std::string path = folder_ + "/" + e->d_name;
    struct stat s;
    if (lstat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
    std::string_view file = e->d_name;
    if (!file.ends_with(".o") && !file.starts_with(".")) continue;
    entries.push_back({std::move(path), s.st_size, s.st_mtim});
    total += s.st_size;
  }
  closedir(dir);
  if (total <= limit_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  // Down to three quarters, so that the next few kernels need no new pass.
  for (const Entry& e : entries) {
    if (total <= limit_ / 4 * 3) break;
    if (unlink(e.path.c_str()) == 0) total -= e.bytes;
  }
}

}  // namespace braze::codegen
