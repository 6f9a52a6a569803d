// Numbers and texts as bytes and back, for what is kept on disk. Whoever reads checks everything: of damaged bytes an
// InternalError is thrown.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace braze {

class ByteWriter {
 public:
  void number(uint64_t v);  // seven bits a byte: small ones are short
  void integer(int64_t v);
  void real(double v);  // by its bits
  void text(std::string_view s);
  void raw(std::string_view s) { bytes_ += s; }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t number();
  uint64_t number(uint64_t most);  // not above `most`
  int64_t integer();
  double real();
  std::string text();
  // How many items follow, of which each takes a byte or more.
  size_t count() { return static_cast<size_t>(number(bytes_.size() - at_)); }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string_view take(size_t n);

  std::string_view bytes_;
  size_t at_ = 0;
};

// Throws the InternalError that damaged bytes end in.
[[noreturn]] void damaged(const char* what);

}  // namespace braze
