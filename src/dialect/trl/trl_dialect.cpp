#include "dialect/dialect.h"
#include "dialect/trl/trl_format.h"

namespace deltawire {
namespace {

class Trl final : public Dialect {
 public:
  std::string_view name() const noexcept override { return "trl"; }
  std::string_view title() const noexcept override { return "TRL, anchors and sparse patches"; }

  Result<bool> recognises(Store& store) const override {
    bool found = false;
    for (const std::string_view folder : {trl::kAnchors, trl::kDeltas}) {
      DW_RETURN_IF_ERROR(list_all(store, folder, "", [&](const ObjectInfo& info) {
        found = found || trl::parse_file_name(folder, info.name).has_value();
        return !found;
      }));
    }
    return found;
  }

  Result<std::vector<uint64_t>> versions(Store& store) const override {
    return trl::list_versions(store);
  }

  Result<std::unique_ptr<ForeignVersion>> open(Store& store, uint64_t version) const override {
    return trl::open_version(store, version);
  }

  // Those who join late begin with an anchor, so the first version is one.
  Result<bool> wants_whole(Store& store, uint64_t version,
                           const ForeignOptions& options) const override {
    if (version == 1) return true;
    if (options.anchor_every != 0 && version % options.anchor_every == 0) return true;
    DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> there, trl::list_versions(store));
    return there.empty();
  }

  Result<std::unique_ptr<ForeignWriter>> create(std::shared_ptr<Store> store,
                                                const ForeignDraft& draft,
                                                const ForeignOptions& options) const override {
    return trl::create_version(std::move(store), draft, options);
  }
};

}  // namespace

const Dialect& trl_dialect() noexcept {
  static const Trl dialect;
  return dialect;
}

}  // namespace deltawire
