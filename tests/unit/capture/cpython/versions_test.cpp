#include "capture/cpython/versions.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "../interpreter.h"
#include "capture/cpython/ref.h"

namespace braze::capture::cpython {
namespace {

class DictVersionTest : public testing::Test {
 protected:
  DictVersionTest() {
    start_interpreter();
    dict = Ref::steal(PyDict_New());
    PyDict_SetItemString(dict.get(), "a", Py_None);
    version = std::make_unique<DictVersion>(dict.get());
  }
  bool moves(const std::function<void()>& change) {
    uint64_t before = *version->word();
    change();
    return *version->word() != before;
  }

  Ref dict;
  std::unique_ptr<DictVersion> version;
};

TEST_F(DictVersionTest, MovesAtEveryChange) {
  Ref one = Ref::steal(PyLong_FromLong(1000)), other = Ref::steal(PyDict_New());
  PyDict_SetItemString(other.get(), "z", one.get());
  EXPECT_TRUE(moves([&] { PyDict_SetItemString(dict.get(), "a", one.get()); }));
  EXPECT_TRUE(moves([&] { PyDict_SetItemString(dict.get(), "b", one.get()); }));
  EXPECT_TRUE(moves([&] { PyDict_DelItemString(dict.get(), "b"); }));
  EXPECT_TRUE(moves([&] { PyDict_Update(dict.get(), other.get()); }));
  EXPECT_TRUE(moves([&] { PyDict_Clear(dict.get()); }));
  EXPECT_TRUE(moves([&] { PyDict_Update(dict.get(), other.get()); }));
}

TEST_F(DictVersionTest, StaysWhereNothingIsStored) {
  EXPECT_FALSE(moves([&] { PyDict_GetItemString(dict.get(), "a"); }));
  EXPECT_FALSE(moves([&] { Ref copy = Ref::steal(PyDict_Copy(dict.get())); }));
  EXPECT_FALSE(moves([&] {
    Ref another = Ref::steal(PyDict_New());
    PyDict_SetItemString(another.get(), "a", Py_None);
  }));
}

TEST_F(DictVersionTest, ManyMayWatchOneDict) {
  {
    DictVersion second(dict.get());
    EXPECT_EQ(*second.word(), *version->word());
    EXPECT_TRUE(moves([&] { PyDict_SetItemString(dict.get(), "b", Py_None); }));
    EXPECT_EQ(*second.word(), *version->word());
  }
  EXPECT_TRUE(moves([&] { PyDict_SetItemString(dict.get(), "c", Py_None); }));
  version.reset();
  PyDict_SetItemString(dict.get(), "d", Py_None);
  version = std::make_unique<DictVersion>(dict.get());
  EXPECT_TRUE(moves([&] { PyDict_SetItemString(dict.get(), "e", Py_None); }));
}

#if PY_VERSION_HEX >= 0x030C0000
TEST_F(DictVersionTest, MovesWhenTheDictDies) {
  EXPECT_TRUE(moves([&] { dict = Ref(); }));
  dict = Ref::steal(PyDict_New());  // which may lie where the other did
  DictVersion another(dict.get());
  EXPECT_FALSE(moves([&] { PyDict_SetItemString(dict.get(), "a", Py_None); }));
}
#endif

}  // namespace
}  // namespace braze::capture::cpython
