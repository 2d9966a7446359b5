// How a file was left, in state.json and in journals.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "replica/local_state.h"

namespace deltawire {

nlohmann::json stamp_json(const FileStamp& stamp);
bool read_stamp(const nlohmann::json& json, FileStamp* stamp);

}  // namespace deltawire
