#include "capture/frames/place.h"

#include <algorithm>
#include <map>

namespace braze::capture {

namespace {

size_t next_number() {
  static size_t count = 0;
  return count++;
}

bool serves(const Entry& entry, const FrameView& view, GuardValues& values, std::string* why) {
  if (entry.globals != view.globals) return false;
  if (entry.guards->check(view.slots, values)) return true;
  if (why) *why += "  " + entry.guards->failure(values) + "\n";
  return false;
}

}  // namespace

Place::Place() : number(next_number()) {}

Place::~Place() {
  for (const GilPtr<Entry>& e : entries_) e->guards->when_over({});  // calls may still hold it
}

// Its guards do not hold.
void Place::failed(Entry& entry, const GuardValues& values) {
  if (entry.met_other_tensor || !entry.guards->wants_tensor(values)) return;
  entry.met_other_tensor = true;
  seen.passes(entry.guards->other_object(values).source);
}

void Place::look_for_passing(const FrameView& view, GuardValues& values) {
  if (entries_.size() < kManyEntries) return;
  std::map<std::string, size_t> met;
  const std::vector<GilPtr<Entry>> now = entries_;  // whatever happens to them meanwhile
  for (const GilPtr<Entry>& e : now)
    if (!serves(*e, view, values, nullptr)) ++met[e->guards->other_object(values).source];
  for (const auto& [source, count] : met)
    if (!source.empty() && count > now.size() / 2) seen.passes(source);
}

GilPtr<Entry> Place::find(const FrameView& view, GuardValues& values, std::string* why) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    GilPtr<Entry> entry = entries_[i];
    uint64_t before = changes_;
    if (serves(*entry, view, values, why)) {
      used(*entry);
      if (changes_ == before) use(i);
      return entry;
    }
    failed(*entry, values);
    if (changes_ == before) continue;
    if (why) why->clear();
    std::vector<GilPtr<Entry>> now = entries_;  // whatever happens to them meanwhile
    for (const GilPtr<Entry>& e : now)
      if (serves(*e, view, values, why)) return used(*e), e;
    break;
  }
  return {};
}

void Place::use(size_t i) {
  if (i == 0) return;
  std::rotate(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(i),
              entries_.begin() + static_cast<ptrdiff_t>(i) + 1);
  ++changes_;
}

void Place::insert(GilPtr<Entry> entry) {
  entry->guards->when_over([this, e = entry.get()] {
    ended_ = e->guards->ended();
    // Of a tensor nothing else hangs off, so that little is lost if others are taken there, too.
    const GuardProgram::Place at = e->guards->ended_place();
    if (!e->uses || (e->uses < kFewUses && (at.tensor || ++short_lived_ >= kManyShortLived))) seen.passes(at.source);
    remove_ended();
  });
  GilPtr<Entry> leaves;  // its end may run code
  if (entries_.size() >= most_) {
    leaves = std::move(entries_.back());
    entries_.pop_back();
    leaves->guards->when_over({});
  }
  entries_.insert(entries_.begin(), std::move(entry));
  ++changes_;
  ++inserted_;
}

void Place::remove_ended() {
  auto ended = std::stable_partition(entries_.begin(), entries_.end(),
                                     [](const GilPtr<Entry>& e) { return !e->guards->is_over(); });
  std::vector<GilPtr<Entry>> gone(std::make_move_iterator(ended), std::make_move_iterator(entries_.end()));
  entries_.erase(ended, entries_.end());
  ++changes_;
  for (const GilPtr<Entry>& e : gone) e->guards->when_over({});
}

int Place::traverse(visitproc visit, void* arg) const {
  for (const GilPtr<Entry>& e : entries_)
    if (int r = e->traverse(visit, arg)) return r;
  return 0;
}

bool Place::rests() {
  if (!resting_) return false;
  --resting_;
  return true;
}

bool Place::compiles_in_vain() {
  constexpr size_t kFirstTrial = 16, kLaterTrial = 4, kLeastUses = 2;  // compilations, and uses of each
  constexpr unsigned kFirstWait = 8, kLongestWait = 1024;
  if (waiting_) return --waiting_, true;
  size_t tried = inserted_ - trial_begin_;
  if (tried < (left_out_ ? kLaterTrial : kFirstTrial)) return false;
  bool in_vain = uses_ < kLeastUses * (tried - 1);  // the latest could hardly be used yet
  trial_begin_ = inserted_;
  uses_ = 0;
  left_out_ = !in_vain ? 0 : left_out_ ? std::min(2 * left_out_, kLongestWait) : kFirstWait;
  waiting_ = in_vain ? left_out_ - 1 : 0;
  return in_vain;
}

void Place::capture_failed() {
  resting_ = (1u << std::min(failed_, 16u)) - 1;
  ++failed_;
}

}  // namespace braze::capture
