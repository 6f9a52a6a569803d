#include "codegen/cpp/compiler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/check.h"

extern char** environ;

namespace braze::codegen::cpp {
namespace {

bool runs(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

std::string on_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return runs(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && folder[0] == '/' && runs(folder + "/" + name)) return folder + "/" + name;
  return "";
}

// A folder of this user's own for the files of one run.
class Folder {
 public:
  Folder() {
    const char* above = std::getenv("TMPDIR");
    std::string name = std::string(above && *above == '/' ? above : "/tmp") + "/braze-XXXXXX";
    BRAZE_CHECK(mkdtemp(name.data()), "no folder for a compiler's files: " + name);
    path_ = name;
  }
  ~Folder() {
    for (const char* file : {"/kernel.cpp", "/kernel.o", "/words"}) unlink((path_ + file).c_str());
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& file) const { return path_ + "/" + file; }

 private:
  std::string path_;
};

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

int run(const std::vector<std::string>& words, const std::string& said) {
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = 0;
  int failed = posix_spawn(&child, argv[0], &files, nullptr, argv.data(), environ), status = 0;
  posix_spawn_file_actions_destroy(&files);
  if (failed) return failed;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return errno == ECHILD ? 0 : errno;  // a program that ignores SIGCHLD is not told
  return status;
}

}  // namespace

std::string compiler_path() {
  if (const char* named = std::getenv("CXX"); named && *named) return on_path(named);
  for (const char* name : {"c++", "g++", "clang++"})
    if (std::string found = on_path(name); !found.empty()) return found;
  return "";
}

std::string compiler_flags(const Target& target) {
  std::string flags = target.host ? "-march=native" : "-march=" + target.model;
  flags += " -mprefer-vector-width=" + std::to_string(target.vector_bits);
  // No contraction and no liberties with NaN, zeros and infinities; errno and traps are nobody's here.
  return flags +
         " -std=c++20 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv -fno-strict-aliasing"
         " -fno-exceptions -fno-rtti -fPIC -fvisibility=hidden -fno-asynchronous-unwind-tables -fno-stack-protector"
         " -fcf-protection=none -fno-builtin -w";
}

std::string compile_text(const std::string& text, const std::string& flags) {
  const std::string compiler = compiler_path();
  if (compiler.empty())
    throw Unsupported(Reason::UnsupportedFeature,
                      "options={'codegen': 'cpp'} without a C++ compiler: install g++ or clang++, or name one in CXX");
  Folder folder;
  std::ofstream(folder / "kernel.cpp") << text;
  std::vector<std::string> words{compiler};
  std::istringstream list(flags);
  for (std::string w; list >> w;) words.push_back(w);
  for (const std::string& w : {std::string("-c"), folder / "kernel.cpp", std::string("-o"), folder / "kernel.o"})
    words.push_back(w);
  const int status = run(words, folder / "words");
  std::string object = status ? "" : content_of(folder / "kernel.o");
  if (object.empty())
    throw InternalError(compiler + " refused a kernel (" + std::to_string(status) + "): " +
                        content_of(folder / "words").substr(0, 4000) + "\n" + text.substr(text.rfind("extern \"C\"")));
  return object;
}

}  // namespace braze::codegen::cpp
