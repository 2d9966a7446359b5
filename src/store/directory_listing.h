// Names of objects below a folder, in their order.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire {

// Visits the objects below `root` whose names begin with `prefix` and sort after `start_after`, in
// byte order of their names, until `visit` returns false. Reads only folders that can hold some.
// What is not an object's name (temporary files, lost+found) is passed over. Memory: the entries of
// the folders on one path.
Status visit_objects(const std::filesystem::path& root, std::string_view prefix,
                     std::string_view start_after,
                     const std::function<Result<bool>(const std::string& name)>& visit);

}  // namespace deltawire
