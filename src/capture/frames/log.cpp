#include "capture/frames/log.h"

#include "base/strict.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace braze::capture {

namespace {

constexpr std::pair<const char*, Topic> kTopics[] = {{"graph_breaks", Topic::GraphBreaks},
                                                     {"recompiles", Topic::Recompiles},
                                                     {"guards", Topic::Guards},
                                                     {"graph", Topic::Graph},
                                                     {"passes", Topic::Passes},
                                                     {"loops", Topic::Loops},
                                                     {"kernels", Topic::Kernels},
                                                     {"autotune", Topic::Autotune}};
unsigned g_topics = 0;

}  // namespace

std::string read_log_topics(const char* value) {
  g_topics = 0;
  std::istringstream in(value ? value : "");
  std::string word, unknown;
  while (std::getline(in, word, ',')) {
    bool known = word.empty();
    for (auto [name, topic] : kTopics)
      if (word == name) {
        g_topics |= static_cast<unsigned>(topic);
        known = true;
      }
    if (!known) unknown = word;
  }
  if (unknown.empty()) return {};
  std::string accepted;
  for (auto [name, topic] : kTopics) accepted += std::string(accepted.empty() ? "" : ", ") + name;
  return "BRAZE_LOGS: no topic '" + unknown + "'; accepted: " + accepted;
}

bool logs(Topic t) { return (g_topics & static_cast<unsigned>(t)) != 0; }
bool logs_texts() { return logs(Topic::Graph) || logs(Topic::Passes) || logs(Topic::Loops) || logs(Topic::Kernels); }

void log(Topic topic, const std::string& text) {
  if (!logs(topic)) return;
  const char* name = "";
  for (auto [n, t] : kTopics)
    if (t == topic) name = n;
  std::fprintf(stderr, "[braze %s] %s%s", name, text.c_str(), !text.empty() && text.back() == '\n' ? "" : "\n");
}

bool strict() { return braze::strict(); }

}  // namespace braze::capture
