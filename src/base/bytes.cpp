#include "base/bytes.h"

#include <cstring>

#include "base/check.h"

namespace braze {

void ByteWriter::number(uint64_t v) {
  for (; v >= 0x80; v >>= 7) bytes_ += static_cast<char>(0x80 | (v & 0x7f));
  bytes_ += static_cast<char>(v);
}

void ByteWriter::integer(int64_t v) {
  number((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63));  // the sign in the lowest bit
}

void ByteWriter::real(double v) {
  char bits[sizeof v];
  std::memcpy(bits, &v, sizeof v);
  bytes_.append(bits, sizeof v);
}

void ByteWriter::text(std::string_view s) {
  number(s.size());
  bytes_ += s;
}

uint64_t ByteReader::number() {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    auto byte = static_cast<unsigned char>(take(1)[0]);
    v |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return v;
  }
  damaged("a number that does not end");
}

uint64_t ByteReader::number(uint64_t most) {
  uint64_t v = number();
  if (v > most) damaged("a number out of range");
  return v;
}

int64_t ByteReader::integer() {
  uint64_t v = number();
  return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
}

double ByteReader::real() {
  double v;
  std::memcpy(&v, take(sizeof v).data(), sizeof v);
  return v;
}

std::string ByteReader::text() { return std::string(take(count())); }

std::string_view ByteReader::take(size_t n) {
  if (n > bytes_.size() - at_) damaged("an early end");
  at_ += n;
  return bytes_.substr(at_ - n, n);
}

void damaged(const char* what) { throw InternalError(std::string("damaged bytes: ") + what); }

}  // namespace braze
