#include "base/log_topics.h"

#include <atomic>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <string_view>

namespace braze {

namespace {

constexpr std::string_view kTopicNames[] = {
#define BRAZE_TOPIC(value, text) text,
#include "base/log_topics.def"
#undef BRAZE_TOPIC
};
std::atomic<unsigned> g_topics{0};

std::string names_of_topics(unsigned topics) {
  std::string all;
  for (size_t i = 0; i < std::size(kTopicNames); ++i)
    if (topics & (1u << i)) all += (all.empty() ? "" : ",") + std::string(kTopicNames[i]);
  return all;
}

}  // namespace

std::string set_log_topics(const std::string& topics) {
  unsigned wanted = 0;
  std::istringstream in(topics);
  std::string word, unknown;
  while (std::getline(in, word, ',')) {
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    bool known = word.empty();
    for (size_t i = 0; i < std::size(kTopicNames); ++i)
      if (word == kTopicNames[i]) {
        wanted |= 1u << i;
        known = true;
      }
    if (!known) unknown = word;
  }
  if (unknown.empty()) {
    g_topics = wanted;
    return {};
  }
  std::string accepted;
  for (std::string_view name : kTopicNames) accepted += (accepted.empty() ? "" : ", ") + std::string(name);
  return "BRAZE_LOGS: no topic '" + unknown + "'; accepted: " + accepted;
}

std::string log_topics() { return names_of_topics(g_topics); }

bool logs(Topic t) { return (g_topics.load(std::memory_order_relaxed) & (1u << static_cast<unsigned>(t))) != 0; }

void tell(Topic topic, const std::string& text) {
  if (!logs(topic)) return;
  std::fprintf(stderr, "[braze %s] %s%s", kTopicNames[static_cast<size_t>(topic)].data(), text.c_str(),
               !text.empty() && text.back() == '\n' ? "" : "\n");
}

}  // namespace braze
