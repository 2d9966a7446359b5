// slime generations 2 and 3, and miles: which versions there are.
#include <algorithm>
#include <utility>

#include "dialect/dialect.h"
#include "dialect/slime/slime_index.h"
#include "dialect/slime/slime_writer.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace slime {
namespace {

// The version whose index an object is.
std::optional<uint64_t> version_of(std::string_view object) {
  const size_t slash = object.find('/');
  if (slash == object.npos || object.substr(slash + 1) != kIndexFileName) return std::nullopt;
  return parse_folder_name(object.substr(0, slash));
}

class SlimeDialect final : public Dialect {
 public:
  std::string_view name() const noexcept override { return "slime"; }
  std::string_view title() const noexcept override { return "slime generations 2 and 3, miles"; }

  Result<bool> recognises(Store& store) const override {
    bool found = false;
    DW_RETURN_IF_ERROR(list_all(store, kFolderBegin, "", [&](const ObjectInfo& info) {
      found = version_of(info.name).has_value();
      return !found;
    }));
    return found;
  }

  Result<std::vector<uint64_t>> versions(Store& store) const override {
    std::vector<uint64_t> found;
    DW_RETURN_IF_ERROR(list_all(store, kFolderBegin, "", [&](const ObjectInfo& info) {
      if (const auto version = version_of(info.name)) found.push_back(*version);
      return true;
    }));
    std::ranges::sort(found);  // names of a million versions and more do not sort by number
    return found;
  }

  Result<std::unique_ptr<ForeignVersion>> open(Store& store, uint64_t version) const override {
    return open_version(store, version);
  }

  Result<std::unique_ptr<ForeignWriter>> create(std::shared_ptr<Store> store,
                                                const ForeignDraft& draft,
                                                const ForeignOptions& options) const override {
    return create_writer(std::move(store), draft, options);
  }
};

}  // namespace
}  // namespace slime

const Dialect& slime_dialect() noexcept {
  static const slime::SlimeDialect dialect;
  return dialect;
}

}  // namespace deltawire
