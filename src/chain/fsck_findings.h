// What a check of a chain has found so far.
#pragma once

#include <string>
#include <string_view>

#include "chain/chain.h"
#include "chain/fsck.h"

namespace deltawire {

struct FsckFindings {
  Store& store;
  FsckReport report = {};

  void problem(const Status& status) { report.problems.push_back(status.to_string()); }
  void warn(std::string what) { report.warnings.push_back(std::move(what)); }
  std::string place(std::string_view object) const {
    return store.url() + "/" + std::string(object);
  }
  // That something is wrong with an object.
  void bad(std::string_view object, std::string_view what) {
    problem(corruption(place(object) + ": " + std::string(what)));
  }
  // Damage is reported and the check goes on; a store that does not answer ends it. Records of a
  // form that nobody may write are damage, too.
  Status note(Status status) {
    if (status.ok()) return {};
    if (!is_damage(status) && status.code() != Code::kInvalidArgument) return status;
    problem(status);
    return {};
  }
};

}  // namespace deltawire
