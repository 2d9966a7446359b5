// One step of one process of the model, in all the ways it can go.
#pragma once

#include "rank_model.h"

namespace deltawire::ranks::model {

inline constexpr const char* kBroke = " broke";  // in every failure of a rank's own work

void step_rank(const World& world, const Limits& limits, unsigned rank, std::vector<Successor>* out,
               std::string* violation);

}  // namespace deltawire::ranks::model
