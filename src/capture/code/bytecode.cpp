#include "capture/code/bytecode.h"

#include <memory>
#include <unordered_map>

#include "base/check.h"
#include "capture/cpython/decode.h"

namespace braze::capture {

namespace {

// Locations as co_linetable has them: one entry for a run of code units.
struct Position {
  int line = 0, end_line = 0, column = -1, end_column = -1;
};

class LineTable {
 public:
  explicit LineTable(PyCodeObject* code) : line_(code->co_firstlineno) {
    p_ = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(code->co_linetable));
    end_ = p_ + PyBytes_GET_SIZE(code->co_linetable);
  }
  std::vector<Position> units(size_t n) {
    std::vector<Position> out;
    out.reserve(n);
    while (p_ < end_ && out.size() < n) {
      uint8_t first = *p_++;
      int code = (first >> 3) & 15, length = (first & 7) + 1;
      Position at;
      if (code < 10) {
        uint8_t b = *p_++;
        at.column = (code << 3) | ((b >> 4) & 7);
        at.end_column = at.column + (b & 15);
      } else if (code < 13) {
        line_ += code - 10;
        at.column = *p_++;
        at.end_column = *p_++;
      } else if (code == 13) {
        line_ += svarint();
      } else if (code == 14) {
        line_ += svarint();
        at.end_line = varint();
        at.column = static_cast<int>(varint()) - 1;
        at.end_column = static_cast<int>(varint()) - 1;
      }
      at.line = code == 15 ? 0 : line_;
      at.end_line += at.line;
      for (int i = 0; i < length; ++i) out.push_back(at);
    }
    out.resize(n);
    return out;
  }

 private:
  unsigned varint() {
    unsigned v = 0, shift = 0;
    for (;;) {
      uint8_t b = *p_++;
      v |= static_cast<unsigned>(b & 63) << shift;
      if (!(b & 64)) return v;
      shift += 6;
    }
  }
  int svarint() {
    unsigned v = varint();
    return v & 1 ? -static_cast<int>(v >> 1) : static_cast<int>(v >> 1);
  }
  const uint8_t *p_, *end_;
  int line_;
};

unsigned table_varint(const uint8_t*& p) {
  unsigned v = *p & 63;
  while (*p++ & 64) v = v << 6 | (*p & 63);
  return v;
}

void read_handlers(Bytecode& bc, PyCodeObject* code) {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(code->co_exceptiontable));
  const uint8_t* end = p + PyBytes_GET_SIZE(code->co_exceptiontable);
  while (p < end) {
    int start = static_cast<int>(table_varint(p)), length = static_cast<int>(table_varint(p));
    int target = static_cast<int>(table_varint(p)), depth = static_cast<int>(table_varint(p));
    bc.handlers.push_back({bc.index_at[target], depth >> 1, (depth & 1) != 0});
    for (Instruction& in : bc.instructions) {
      int unit = in.offset / 2;
      if (unit >= start && unit < start + length) in.handler = static_cast<int32_t>(bc.handlers.size()) - 1;
    }
  }
}

std::unique_ptr<Bytecode> decode_now(PyCodeObject* code) {
  Ref bytes = Ref::steal(PyCode_GetCode(code));
  if (!bytes) {
    PyErr_Clear();
    throw InternalError("no bytecode");
  }
  const uint8_t* raw = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes.get()));
  int units = static_cast<int>(PyBytes_GET_SIZE(bytes.get()) / 2);
  auto bc = std::make_unique<Bytecode>();
  bc->code = code;
  Py_INCREF(code);
  bc->num_locals_plus = code->co_nlocalsplus;
  bc->num_locals = code->co_nlocals;
  bc->num_cells = code->co_ncellvars;
  bc->num_frees = code->co_nfreevars;
  bc->max_stack = code->co_stacksize;
  bc->index_at.assign(units + 1, 0);
  std::vector<Position> positions = LineTable(code).units(units);
  std::vector<int> targets;
  int extended = 0;
  for (int u = 0; u < units;) {
    int first = u;
    while (cpython::is_extended_arg(raw[2 * u])) {
      extended = extended << 8 | raw[2 * u + 1];
      ++u;
    }
    int op = raw[2 * u], arg = extended << 8 | raw[2 * u + 1], at = u++;
    extended = 0;
    while (u < units && cpython::is_cache(raw[2 * u])) ++u;
    cpython::Mapped m = cpython::map_instruction(op, arg, u);
    Instruction in;
    in.op = m.op;
    in.flag = m.flag;
    in.arg = m.arg;
    in.offset = 2 * at;
    in.next_offset = 2 * u;
    in.line = positions[at].line;
    in.end_line = positions[at].end_line;
    in.column = positions[at].column;
    in.end_column = positions[at].end_column;
    for (int i = first; i < u; ++i) bc->index_at[i] = static_cast<int32_t>(bc->instructions.size());
    bc->instructions.push_back(in);
    targets.push_back(m.target_unit);
    if (auto second = cpython::second_instruction(op, arg)) {
      in.op = second->op;
      in.arg = second->arg;
      in.second = true;
      bc->instructions.push_back(in);
      targets.push_back(second->target_unit);
    }
  }
  bc->index_at[units] = static_cast<int32_t>(bc->instructions.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    BRAZE_CHECK(targets[i] < units, "jump out of the code");
    bc->instructions[i].target = bc->index_at[targets[i]];
  }
  // Some versions push a variable's cell as they push a variable's value.
  for (Instruction& in : bc->instructions)
    if (in.op == Opcode::LoadFast && (bc->is_cell(in.arg) || bc->is_free(in.arg))) in.op = Opcode::LoadClosure;
  read_handlers(*bc, code);
  return bc;
}

}  // namespace

PyObject* Bytecode::name(int32_t i) const { return PyTuple_GET_ITEM(code->co_names, i); }
PyObject* Bytecode::constant(int32_t i) const { return PyTuple_GET_ITEM(code->co_consts, i); }
PyObject* Bytecode::local_name(int32_t i) const { return PyTuple_GET_ITEM(code->co_localsplusnames, i); }
bool Bytecode::is_cell(int32_t i) const {
  constexpr int kFastCell = 0x40;  // CO_FAST_CELL
  return (PyBytes_AS_STRING(code->co_localspluskinds)[i] & kFastCell) != 0;
}

int32_t Bytecode::raised_again(int32_t at, std::vector<int32_t>& compared) const {
  for (auto i = static_cast<size_t>(at); i < instructions.size();) {
    const Instruction& ins = instructions[i];
    switch (ins.op) {
      case Opcode::Nop:
      case Opcode::PushExcInfo:
      case Opcode::Copy:  // of the saved exception, where the handler itself is left
      case Opcode::PopExcept:
      case Opcode::BuildTuple:
      case Opcode::CheckExcMatch: ++i; break;
      case Opcode::LoadGlobal:
        compared.push_back(ins.arg);
        ++i;
        break;
      case Opcode::PopJumpIfFalse:
        if (instructions[i - 1].op != Opcode::CheckExcMatch || ins.target <= static_cast<int32_t>(i)) return -1;
        i = static_cast<size_t>(ins.target);
        break;
      case Opcode::Reraise: return static_cast<int32_t>(i);
      default: return -1;
    }
  }
  return -1;
}

bool Bytecode::has_end_to_run(int32_t at, std::vector<int32_t>* compared) const {
  // What later versions of Python put around a generator, and around the wait for another, is not the program's.
  for (;;) {
    int handler = instructions[static_cast<size_t>(at)].handler;
    if (handler < 0) return false;
    at = handlers[static_cast<size_t>(handler)].target;
    Opcode begins = instructions[static_cast<size_t>(at)].op;
    if (begins == Opcode::StopIterationError) return false;
    if (begins == Opcode::CleanupThrow) continue;
    if (!compared || (at = raised_again(at, *compared)) < 0) return true;
  }
}

const Bytecode& decode(PyCodeObject* code) {
  static auto* cache = new std::unordered_map<PyCodeObject*, std::unique_ptr<Bytecode>>();
  auto& slot = (*cache)[code];
  if (!slot) slot = decode_now(code);
  return *slot;
}

std::string describe(const UserLine& at) {
  if (!at.code) return "?";
  const char* file = PyUnicode_AsUTF8(at.code->co_filename);
  if (!file) {
    PyErr_Clear();
    file = "?";
  }
  return std::string(file) + ":" + std::to_string(at.line);
}

std::string source_text(const UserLine& at) {
  if (!at.code) return {};
  Ref linecache = Ref::steal(PyImport_ImportModule("linecache"));
  Ref line = linecache
                 ? Ref::steal(PyObject_CallMethod(linecache.get(), "getline", "Oi", at.code->co_filename, at.line))
                 : Ref();
  const char* text = line ? PyUnicode_AsUTF8(line.get()) : nullptr;
  if (!text) {
    PyErr_Clear();
    return {};
  }
  std::string s(text);
  size_t b = s.find_first_not_of(" \t"), e = s.find_last_not_of(" \t\r\n");
  return b == std::string::npos ? std::string() : s.substr(b, e - b + 1);
}

}  // namespace braze::capture
