// What import, export and the verbs that look at files share about other projects' versions.
#pragma once

#include <memory>
#include <string>

#include "bridge/bridge.h"
#include "dialect/dialect.h"

namespace deltawire {

// InvalidArgument, naming those that there are.
Result<const Dialect*> require_dialect(const std::string& name);

ForeignSummary summary_of(const Dialect& dialect, const ForeignInfo& info, bool tensors);

// A canonical name for a store's location, which a chain remembers as its source.
std::string place_of(const Store& store);

// InvalidArgument where the path does not name one version.
Result<std::unique_ptr<ForeignVersion>> open_foreign(const ForeignPath& path);

// Tells two versions of one number apart without reading their payloads: hex digits.
std::string fingerprint_of(const ForeignInfo& info);

}  // namespace deltawire
