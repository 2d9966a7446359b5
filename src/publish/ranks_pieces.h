// The lists in a rank's report: what it holds, and what it has put.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "publish/record.h"

namespace deltawire {

std::string json_list(const std::vector<std::string>& items);

std::string pieces_json(const std::vector<PieceRecord>& pieces);
// Corruption or Unsupported, with what is wrong, when a piece cannot be what it says.
Result<std::vector<PieceRecord>> parse_pieces(std::string_view json);

std::string parts_json(const std::vector<PartRef>& parts);
// Corruption when a part does not lie where parts of this version may.
Result<std::vector<PartRef>> parse_parts(std::string_view json, uint64_t version);

}  // namespace deltawire
