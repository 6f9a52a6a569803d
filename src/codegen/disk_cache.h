// Objects kept on disk between processes.
//
// One file per kernel, and per compiled graph, in a folder of the user's own (mode 0700, files 0600): BRAZE_CACHE_DIR,
// else $XDG_CACHE_HOME/braze, else ~/.cache/braze. A folder or file that is not ours or that others may write is not
// used. A file carries the whole key and a checksum; one that does not match is ignored and written anew. Writing is
// atomic. The oldest files go when all together pass 1 GiB.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braze::codegen {

class DiskCache {
 public:
  // The folder as the environment says now; a cache that finds and keeps nothing where there is none.
  DiskCache();
  explicit DiskCache(std::string folder, int64_t limit = int64_t{1} << 30);
  bool usable() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  std::optional<std::string> find(std::string_view name, std::string_view key) const;
  // Also trims the folder, when the process first writes and after every 64 MiB, on a thread of its own.
  void keep(std::string_view name, std::string_view key, std::string_view object);
  void trim() const;

 private:
  std::string folder_;  // empty: unusable
  int64_t limit_;
};

// Paths of what this process found or kept, of all its caches, in order.
std::vector<std::string> used_cache_files();

}  // namespace braze::codegen
