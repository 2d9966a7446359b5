#include "dialect/dialect.h"
#include "dialect/slime_gen1/gen1_folder.h"
#include "dialect/slime_gen1/gen1_version.h"

namespace deltawire {
namespace {

class SlimeGen1 final : public Dialect {
 public:
  std::string_view name() const noexcept override { return "slime-gen1"; }
  std::string_view title() const noexcept override { return "slime generation 1"; }
  Result<bool> recognises(Store& store) const override { return gen1::has_names(store); }
  Result<std::vector<uint64_t>> versions(Store& store) const override {
    return gen1::list_versions(store);
  }
  Result<std::unique_ptr<ForeignVersion>> open(Store& store, uint64_t version) const override {
    return gen1::open_version(store, version);
  }
  Result<std::unique_ptr<ForeignWriter>> create(std::shared_ptr<Store> store,
                                                const ForeignDraft& draft,
                                                const ForeignOptions& options) const override {
    return gen1::create_version(std::move(store), draft, options);
  }
};

}  // namespace

const Dialect& slime_gen1_dialect() noexcept {
  static const SlimeGen1 dialect;
  return dialect;
}

}  // namespace deltawire
