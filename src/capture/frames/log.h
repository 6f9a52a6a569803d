// What BRAZE_LOGS asks for, written to stderr, one block at a time.
#pragma once
#include <string>

namespace braze::capture {

enum class Topic : unsigned {
  GraphBreaks = 1,
  Recompiles = 2,
  Guards = 4,
  Graph = 8,
  Loops = 16,
  Kernels = 32,
  Passes = 64,
  Autotune = 128  // told by launch/
};

// Reads BRAZE_LOGS (topics by comma). Returns a message naming the accepted ones if one is unknown.
std::string read_log_topics(const char* value);
bool logs(Topic);
bool logs_texts();  // a topic that needs the stages' texts
void log(Topic topic, const std::string& text);
// BRAZE_STRICT=1: internal failures raise instead of running eagerly.
bool strict();

}  // namespace braze::capture
