// What is told on stderr while the program runs: BRAZE_LOGS, or braze.set_logs().
#pragma once
#include <string>

namespace braze {

enum class Topic : unsigned {
#define BRAZE_TOPIC(value, text) value,
#include "base/log_topics.def"
#undef BRAZE_TOPIC
};

// Topics by commas replace those that were told. Returns a message naming the accepted ones if one is unknown; nothing
// changes then.
std::string set_log_topics(const std::string& topics);
std::string log_topics();  // those that are told, by commas
bool logs(Topic);          // on any thread
void tell(Topic, const std::string& text);

}  // namespace braze
