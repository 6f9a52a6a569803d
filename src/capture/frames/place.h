// The entries of one place: of an instruction of a code object where compiled code may begin.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capture/frames/entry.h"

namespace braze::capture {

class Place : public GilCounted {
 public:
  // So many are kept, if not asked for more. What a call needs that has left is compiled again.
  static constexpr size_t kMostEntries = 64;

  Place();
  ~Place();

  const size_t number;  // among all places of the process
  SeenSizes seen;
  // Captures of other processes that were put here. What changes that often is captured here, where it is found out
  // what of it changes.
  static constexpr size_t kMostKept = 4;
  size_t kept = 0;

  // The entry that was used last, or nullptr.
  const GilPtr<Entry>* latest() const { return entries_.empty() ? nullptr : &entries_[0]; }
  // The entry whose guards hold for the frame, with what its check fetched, or none. Checks may run code of the
  // program's, which may change the entries. `why`: receives a line for each check that failed.
  GilPtr<Entry> find(const FrameView& view, GuardValues& values, std::string* why = nullptr);
  // Before one more is made: where most of very many differ only in which object they found, it is taken for one that
  // passes.
  void look_for_passing(const FrameView& view, GuardValues& values);
  // Makes it the one that was used last; the one that was not used for the longest time leaves where there are too
  // many.
  void insert(GilPtr<Entry> entry);
  // Changes whenever the entries do: those that there were before a change may be gone, others come.
  uint64_t changes() const { return changes_; }
  size_t inserted() const { return inserted_; }  // so far
  const std::vector<GilPtr<Entry>>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  // Whether a new entry would put out one that this very run of the frame, a loop in many segments, has just used: then
  // so would the next run, and each call would compile all of them.
  bool is_spent(size_t rounds) const { return entries_.size() >= most_ && rounds > most_ / 2; }
  void keep_at_least(size_t entries) { most_ = std::max(most_, entries); }
  bool is_first_call() { return !std::exchange(called_, true); }  // of those that ask
  // Why the last of the entries that ended did; empty once it was asked.
  std::string take_ended() { return std::exchange(ended_, {}); }
  int traverse(visitproc visit, void* arg) const;

  // Captures that failed by an error of ours are tried again after 0, 1, 3, 7... calls: inputs of other kinds may do.
  bool rests();  // whether this call is one that runs uncompiled instead
  void capture_failed();
  void capture_succeeded() { failed_ = resting_ = 0; }

  // An entry served a call that it was not compiled for.
  void used(Entry& entry) {
    ++entry.uses;
    ++uses_;
  }
  // Whether this call is to run uncompiled instead of being compiled for, for what was compiled here lately served next
  // to no other calls: objects or numbers differ each time, and in a way that is compiled in. Of so many calls that
  // would compile each time more are left out, up to a limit: what a program does may change.
  bool compiles_in_vain();

 private:
  static constexpr size_t kManyEntries = 8;
  static constexpr size_t kFewUses = 64, kManyShortLived = 4;  // of code that is compiled for one object

  void failed(Entry& entry, const GuardValues& values);
  void use(size_t i);
  void remove_ended();  // those that no call can match any more

  std::vector<GilPtr<Entry>> entries_;  // in the order of use, the latest first
  uint64_t changes_ = 0;
  size_t inserted_ = 0;
  std::string ended_;
  size_t short_lived_ = 0;  // entries that ended with their object after few uses
  unsigned failed_ = 0, resting_ = 0;
  size_t uses_ = 0;                      // of entries, since the trial began
  size_t trial_begin_ = 0;               // inserted_ then
  unsigned left_out_ = 0, waiting_ = 0;  // calls: at the last time, and those of it to come
  size_t most_ = kMostEntries;
  bool called_ = false;
};

}  // namespace braze::capture
