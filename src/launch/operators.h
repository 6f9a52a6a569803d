// Operators of the dispatcher that Braze itself brings. No torch header.
#pragma once

namespace braze::launch::flex {

// braze::flex_attention and its backward, before its first capture; more calls do nothing.
void register_operators();

}  // namespace braze::launch::flex
