// A pointwise nest as lines of a kernel that computes it for one tile of a matrix: what comes before or after a
// product.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loop/loop.h"

namespace braze::codegen::triton {

// The nest over axes [batch, row, column] of these extents instead of its own. Its points keep their order, the last
// axis fastest. nullopt: a nest of several stages, of open sizes, or of another number of points.
struct MatrixNest {
  loop::Nest nest;
  sym::Expr position;  // the place of a point in that order
};
std::optional<MatrixNest> over_matrix(const loop::Program& program, const loop::Nest& nest,
                                      const std::array<int64_t, 3>& extents);

enum class Along : uint8_t { Neither = 0, Rows = 1, Columns = 2 };  // the dimension of a tile that an index runs along

struct TileNames {
  std::array<std::pair<std::string, Along>, 3> indices;  // batch, row, column: as the tile has them
  std::string row_mask, column_mask;                     // along the tile's dimensions; empty: all elements exist
  std::map<uint32_t, std::string> given;                 // buffers whose elements are there: a tile's name
  std::map<uint32_t, std::string> pointers;              // other buffers
  std::set<uint32_t> taken;                              // stored buffers whose values the tile's kernel takes itself
  std::string prefix;                                    // of the names that the lines define; not empty
  bool quick = false;  // division may be off by two units in the last place of f32: what becomes of it has 16 bits
};
struct TileText {
  std::vector<std::string> lines;
  std::map<uint32_t, std::string> values;  // of the buffers that are taken
};

// A tile is [YBLOCK, XBLOCK] where it is stored. Throws Inexpressible.
TileText print_tile(const loop::Program& program, const MatrixNest& nest, const TileNames& names, int sm,
                    std::set<std::string>& helpers);
// Whether its indices want 64 bits.
bool is_wide(const loop::Program& program, const MatrixNest& nest, int sm);

}  // namespace braze::codegen::triton
