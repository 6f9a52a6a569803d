// Python objects that one process tells of and another one finds.
//
// An object is told of by its value (numbers, texts, tuples of such), by what it is to the frame (its code, its
// globals), or by what is known of it here: its class, its name, the content of its code. One of the last kind is found
// where the program leads to it, or by its name, and taken if it is known by the same there. Two objects that differ
// here are two there as well.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "capture/cpython/ref.h"
#include "capture/kept/looks.h"

namespace braze::capture {

struct FrameView;

// Thrown for what another process cannot be told of.
struct NotKept {
  std::string what;
};

// Numbers begin at 1; 0 stands for no object.
class ObjectTable {
 public:
  // `signatures`: as in Segment.
  ObjectTable(const FrameView& frame, const std::vector<std::pair<Ref, Ref>>& signatures)
      : frame_(frame), signatures_(signatures) {}
  // The number of an object, which is to live as long as the table. Throws NotKept.
  uint32_t number(PyObject* object);
  // The same of one that has a number already, else 0.
  uint32_t known(PyObject* object) const {
    auto it = numbers_.find(object);
    return it == numbers_.end() ? 0 : it->second;
  }
  // Where the program leads to it, what is read here is compared there.
  void is_led_to(PyObject* object);
  // Once all have a number. Throws NotKept where an object would not be found: it has no name, and nothing leads to it.
  void check();
  std::string take() const;

 private:
  // OfClass: a class's own dict. Signature: what inspect.signature() says of a function, or of a method of anything.
  enum class Found : uint8_t { ByValue, InFrame, ByName, OfClass, Signature, ByLooks };
  struct Record {
    Found how = Found::ByLooks;
    bool led_to = false;
    std::string value;  // of a value: its bytes; else its name, as far as there is one; or what the frame calls it
    std::string looks;
    std::vector<uint32_t> parts;  // of its looks, or of a tuple
  };
  Record record(PyObject* object);
  bool by_value(PyObject* object, Record& r);

  const FrameView& frame_;
  const std::vector<std::pair<Ref, Ref>>& signatures_;
  std::vector<Record> records_;
  std::vector<PyObject*> objects_;
  std::unordered_map<PyObject*, uint32_t> numbers_;
  friend class FoundObjects;
};

class FoundObjects {
 public:
  // Throws InternalError for damaged bytes.
  FoundObjects(const std::string& table, const FrameView& frame);

  // The object, or nullptr: it was not found, or not yet.
  PyObject* get(uint32_t number) const;
  // The program leads to this object where it led to that number. False: it is another.
  bool bind(uint32_t number, PyObject* object);
  // Whether an object was found by its name that is made of other parts than it was: nothing here holds then, since the
  // program may lead to that very object.
  bool differs() const { return differs_; }
  // Values with parts that were found since.
  void make_values();
  size_t size() const { return records_.size(); }
  std::string print(uint32_t number) const;  // for the log

 private:
  using Found = ObjectTable::Found;
  using Record = ObjectTable::Record;
  Ref make_value(const Record& r) const;
  Ref make_signature(const Record& r) const;
  void find_names();

  std::vector<Record> records_;
  std::vector<Ref> objects_;
  std::unordered_map<PyObject*, uint32_t> numbers_;  // of those that are known by their looks
  bool differs_ = false;
};

}  // namespace braze::capture
