// The dialects that this build has; registry.cpp lists them.
#pragma once

namespace deltawire {

class Dialect;

const Dialect& slime_dialect() noexcept;  // generations 2 and 3, miles
const Dialect& slime_gen1_dialect() noexcept;
const Dialect& trl_dialect() noexcept;

}  // namespace deltawire
