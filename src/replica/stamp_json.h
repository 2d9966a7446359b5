// What state.json and journals share: how a file was left, and which version something is.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "replica/local_state.h"

namespace deltawire {

nlohmann::json stamp_json(const FileStamp& stamp);
bool read_stamp(const nlohmann::json& json, FileStamp* stamp);

nlohmann::json identity_json(const Identity& identity);
bool read_identity(const nlohmann::json& json, Identity* identity);

}  // namespace deltawire
