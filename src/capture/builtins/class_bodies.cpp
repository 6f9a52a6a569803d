#include "capture/builtins/class_bodies.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "capture/code/bytecode.h"
#include "capture/cpython/call_order.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

[[noreturn]] void refuse(Translator& tr, const std::string& what) { tr.unsupported("a class whose body " + what); }

PyCodeObject* code_at(const Bytecode& code, size_t i) {
  if (i >= code.instructions.size() || code.instructions[i].op != Opcode::LoadConst) return nullptr;
  PyObject* c = code.constant(code.instructions[i].arg);
  return PyCode_Check(c) ? reinterpret_cast<PyCodeObject*>(c) : nullptr;
}

bool is_call(Opcode op) { return op == Opcode::Call || op == Opcode::CallKw || op == Opcode::CallFunctionEx; }

// A function that the body makes and calls there and then: by its neighbour on the stack.
bool calls_what_it_makes(const Bytecode& code, size_t i) {
  const auto& all = code.instructions;
  if (all[i].op != Opcode::PushNull) return false;
  if (cpython::kNullAbove)
    return i > 0 && (all[i - 1].op == Opcode::MakeFunction || all[i - 1].op == Opcode::SetFunctionAttribute);
  for (size_t k = i + 1; k < all.size(); ++k) switch (all[k].op) {
      case Opcode::LoadName:
      case Opcode::LoadGlobal:
      case Opcode::LoadBuildClass: return false;
      case Opcode::Nop: continue;
      default: return true;
    }
  return true;
}

// Functions that make parts of classes, and have no other effect.
bool makes_parts(PyObject* o) {
  static const std::unordered_set<PyObject*> known = [] {
    std::unordered_set<PyObject*> out;
    for (const char* n : {"property", "staticmethod", "classmethod", "tuple", "list", "dict", "set", "frozenset", "int",
                          "float", "str", "bool", "range", "complex", "bytes", "slice"})
      out.insert(native::builtin(n));
    out.insert(imported("dataclasses", "field", true));
    out.insert(imported("dataclasses", "dataclass", true));
    out.insert(imported("functools", "cached_property", true));
    out.insert(imported("abc", "abstractmethod", true));
    return out;
  }();
  return known.contains(o);
}

// What reading it is the same for in each call, once its identity or value is guarded.
bool is_fixed(PyObject* o) {
  if (is_constant_type(Py_TYPE(o)) || PyType_Check(o) || PyCFunction_Check(o) || PyFunction_Check(o)) return true;
  if (!PyModule_CheckExact(o)) return Py_TYPE(o) == &Py_GenericAliasType;
  const char* name = PyModule_GetName(o);
  PyErr_Clear();
  const std::string_view n = name ? name : "";
  return n == "torch" || n == "typing" || n == "dataclasses" || n == "functools" || n == "abc" ||
         n.starts_with("torch.nn");
}

class Body {
 public:
  Body(Translator& tr, PyObject* globals) : tr_(tr), globals_(globals) {}

  void check(PyCodeObject* body) {
    const Bytecode& code = decode(body);
    const auto& all = code.instructions;
    const bool calls = std::any_of(all.begin(), all.end(), [](const Instruction& in) { return is_call(in.op); });
    std::unordered_set<std::string_view> own{"__name__", "__module__", "__qualname__", "__annotations__"};
    auto text = [&](int32_t i) { return std::string_view(PyUnicode_AsUTF8(code.name(i))); };
    for (size_t i = 0; i < all.size(); ++i) {
      const Instruction& in = all[i];
      switch (in.op) {
        case Opcode::StoreName: own.insert(text(in.arg)); break;
        case Opcode::LoadName:
          if (!own.contains(text(in.arg)))
            read(code.name(in.arg), calls);
          else if (calls && text(in.arg).substr(0, 2) != "__" && !is_accessor(code, i + 1))
            refuse(tr_, "uses what it made");
          break;
        case Opcode::LoadGlobal: read(code.name(in.arg), calls); break;
        case Opcode::LoadDeref:
        case Opcode::LoadClassDeref:
          if (calls) refuse(tr_, "calls something, and uses the function around it");
          break;
        case Opcode::StoreDeref:
        case Opcode::DeleteDeref:
          if (code.is_free(in.arg)) refuse(tr_, "changes a variable of the function around it");
          break;
        case Opcode::LoadAttr:
        case Opcode::LoadMethod:
          if (!is_accessor(code, i) && users_) refuse(tr_, "reads an attribute");
          break;
        case Opcode::LoadBuildClass: {
          size_t k = i + 1;
          while (k < all.size() && !code_at(code, k) && all[k].op != Opcode::StoreName) ++k;
          PyCodeObject* inner = code_at(code, k);
          if (!inner) refuse(tr_, "defines another class");
          check(inner);
          break;
        }
        case Opcode::PushNull:
          if (calls_what_it_makes(code, i)) refuse(tr_, "calls a function that it makes");
          break;
        default:
          if (!binds(in.op)) refuse(tr_, "does more than to define things");
      }
    }
  }

 private:
  static bool binds(Opcode op) {
    switch (op) {
      case Opcode::Nop:
      case Opcode::Resume:
      case Opcode::PopTop:
      case Opcode::Copy:
      case Opcode::Swap:
      case Opcode::LoadConst:
      case Opcode::LoadSmallInt:
      case Opcode::LoadCommonConstant:
      case Opcode::MakeCell:
      case Opcode::CopyFreeVars:
      case Opcode::LoadClosure:
      case Opcode::LoadFast:
      case Opcode::LoadLocals:
      case Opcode::StoreFast:
      case Opcode::StoreSubscr:  // of annotations
      case Opcode::BuildTuple:
      case Opcode::BuildList:
      case Opcode::BuildSet:
      case Opcode::BuildMap:
      case Opcode::BuildConstKeyMap:
      case Opcode::BuildString:
      case Opcode::ListExtend:
      case Opcode::SetUpdate:
      case Opcode::DictUpdate:
      case Opcode::ListToTuple:
      case Opcode::UnpackSequence:
      case Opcode::UnaryNegative:
      case Opcode::UnaryInvert:
      case Opcode::UnaryNot:
      case Opcode::BinaryOp:
      case Opcode::BinarySubscr:
      case Opcode::CompareOp:
      case Opcode::KwNames:
      case Opcode::Call:
      case Opcode::CallKw:
      case Opcode::CallFunctionEx:
      case Opcode::MakeFunction:
      case Opcode::SetFunctionAttribute:
      case Opcode::ReturnValue:
      case Opcode::ReturnConst:
      case Opcode::SetupAnnotations: return true;
      default: return false;
    }
  }

  static bool is_accessor(const Bytecode& code, size_t i) {
    if (i >= code.instructions.size()) return false;
    const Instruction& in = code.instructions[i];
    if (in.op != Opcode::LoadAttr && in.op != Opcode::LoadMethod) return false;
    const std::string_view n = PyUnicode_AsUTF8(code.name(in.arg));
    return n == "setter" || n == "getter" || n == "deleter" || n == "__doc__";
  }

  // A name of the module's, or of Python's: guarded, and what the body finds there is what the captured code would.
  void read(PyObject* name, bool calls) {
    Frame* f = tr_.frame();
    if (f->globals != globals_) refuse(tr_, "is of another module");
    Variable* v = tr_.force(tr_.real.specialised(tr_.force(tr_.load_global(*f, name))));
    static PyObject* builtins = imported("builtins", "__dict__", true);
    PyObject* real = native::item(Ground::conservative(), globals_, name);
    if (!real) real = native::item(Ground::conservative(), builtins, name);
    const std::string text = std::string("reads '") + PyUnicode_AsUTF8(name) + "'";
    if (!real || !is_fixed(real)) refuse(tr_, text);
    if (v->as_constant() != real) {
      auto* fn = v->is(Kind::Function) ? v->as<FunctionVariable>() : nullptr;
      if (!fn || fn->real.get() != real) refuse(tr_, text);
      tr_.guard_identity(fn->source, real);
    }
    const bool users = PyType_Check(real) ? !is_fixed_type(reinterpret_cast<PyTypeObject*>(real))
                                          : PyFunction_Check(real) && !of_library(real);
    users_ = users_ || users;
    const bool callable = PyType_Check(real) || PyFunction_Check(real) || PyCFunction_Check(real);
    if (calls && (callable ? !makes_parts(real) : PyModule_Check(real))) refuse(tr_, "calls something");
  }

  Translator& tr_;
  PyObject* const globals_;
  bool users_ = false;  // it reads classes or functions of the program's
};

}  // namespace

void check_class_body(Translator& tr, FunctionVariable* body) { Body(tr, body->globals).check(body->code_object()); }

}  // namespace braze::capture
