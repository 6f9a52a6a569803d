// What hangs off objects that are fixed, as a table of (address, expected word): types of objects, versions of dicts
// and types, items of lists, contents of cells... A scan of the table says that nothing of it changed since it was
// compared with the guards.
//
// A table is written once. Afterwards only tags are written anew, and a table that is no longer up to date stays as it
// is for the checks that are using it.
#pragma once
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/cpython/versions.h"
#include "capture/guards/check_order.h"
#include "capture/guards/death_watch.h"

namespace braze::capture {

class WatchTable {
 public:
  // `secured`: objects that need no watching, since the program hears of their end or holds them.
  WatchTable(const CheckOrder& order, const std::unordered_set<PyObject*>& secured);

  // Fetches everything that is anchored and compares it with its guards; `registers` has what was fetched before. True:
  // all held when they were compared; whether they still do is for unchanged() to say.
  bool fill(PyObject* const* slots, size_t num_locals_plus, PyObject* const* registers, GuardFailure& failure);
  // True: at one moment during this call, after which no code of the user's ran, everything was as the guards want it.
  bool unchanged();
  // Into the registers of a check, references included; right after unchanged().
  void import_values(PyObject** registers) const;

  size_t num_words() const { return words_.size() + short_words_.size(); }
  // What has to be compared in every check, since nothing tells of its changes.
  const std::vector<std::pair<const Guard*, PyObject*>>& always() const { return always_; }
  // Whether an object is one of an anchored group's.
  bool has(uint32_t group, PyObject* object) const { return groups_[group].count(object) != 0; }
  const std::vector<Ref>& pins() const { return pins_; }

  int users = 0;  // checks, and the program that publishes it; under the GIL

 private:
  struct Word {
    const uint64_t* at;
    uint64_t expected;
  };
  struct ShortWord {
    const unsigned* at;
    unsigned expected;
  };
  // What to look up again when a tag moved.
  struct KeyRead {
    PyObject* key;
    PyObject* value;     // nullptr: was not there
    PyTypeObject* type;  // of the value
  };
  struct Tagged {
    PyObject* object;  // a dict or a type
    std::vector<KeyRead> keys;
    std::vector<const Guard*> whole;  // guards over the whole dict
    bool any_change = false;          // the order of keys was read: no change can be taken
  };
  enum class Scan : uint8_t { Same, Differs, Again };

  Scan scan();
  bool same_but_for_dicts() const;
  // `ran_code`: code of the user's may have run meanwhile.
  bool still_reads(const Tagged& tagged, bool& ran_code) const;
  void before_step(const Source& source, PyObject* base);
  void after_step(const Source& source, PyObject* base, PyObject* value);
  void watch_guard(const Guard& guard, PyObject* value);
  void watch_class(PyObject* object);
  void secure(PyObject* value, SourceKind from);
  Tagged& tag(PyObject* object);
  template <class T>
  void word(T* at, const void* expected) {
    static_assert(sizeof(T) == 8);
    add_word(reinterpret_cast<const uint64_t*>(at), reinterpret_cast<uint64_t>(expected), CheckOrder::kNone);
  }
  void add_word(const uint64_t* at, uint64_t expected, uint32_t owner);

  const CheckOrder& order_;
  const std::unordered_set<PyObject*>& secured_;
  std::vector<Word> words_;
  std::vector<uint32_t> owner_;  // by word: which of tagged_ to look into when it moved
  // Those that are no dict's, where somebody counts the changes of dicts; and that count when all were the same.
  std::vector<Word> words_beside_dicts_;
  uint64_t dict_changes_ = 0;
  std::vector<ShortWord> short_words_;
  std::vector<uint32_t> short_owner_;
  std::vector<Tagged> tagged_;
  std::vector<cpython::DictVersion> versions_;  // of the dicts among them
  std::vector<PyObject*> imported_;
  std::vector<std::pair<const Guard*, PyObject*>> always_;
  std::vector<std::unordered_set<PyObject*>> groups_;  // the values of CheckOrder::anchored_groups
  bool contradicts_ = false;                           // the same word was read twice, and differed
  bool lost_ = false;                                  // something that the table knows by its address is gone
  // What the words and the values of keys are compared with.
  std::vector<Ref> pins_;
  DeathWatch deaths_{[this](size_t) { lost_ = true; }};
  // While it is written.
  std::unordered_set<PyObject*> pinned_;
  std::unordered_map<const uint64_t*, uint64_t> seen_;
  std::unordered_map<PyObject*, uint32_t> tag_of_;
};

}  // namespace braze::capture
