"""What was seen of one pass, by name: what `Trace` and `Attention` have in common."""

from torch import Tensor

from lorgnette.attending import Site
from lorgnette.constraints import check, checked
from lorgnette.errors import UserError, near
from lorgnette.subject import Subject


class RecordedPass:
    """Names of what a pass recorded: `encoder.3.weights` is one layer, `encoder.weights` (or `weights`) a stack."""

    subject: Subject

    @property
    def sites(self) -> tuple[Site, ...]:
        """Where attention was recorded."""
        raise NotImplementedError

    @property
    def stored(self) -> tuple[str, ...]:
        """What there is at every site: query, key, value, weights, context …"""
        raise NotImplementedError

    def contexts(self) -> dict[Site, Tensor]:
        """The outputs of the heads, by site, as far as they were stored."""
        raise NotImplementedError

    @property
    def stacks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(site.name for site in self.sites))

    def names(self) -> tuple[str, ...]:
        """All names of one layer that can be indexed: `encoder.1.weights`, …"""
        return tuple(f"{site.name}.{site.layer + 1}.{part}" for site in self.sites for part in self.stored)

    @checked
    def placed(self, name: str) -> tuple[list[Site], str]:
        """The sites that a name means, one if it has a layer, and the part."""
        *where, part = name.split(".")
        if part not in self.stored:
            raise UserError(f"This pass has no {name!r}.{near(part, self.stored)} Stored: {', '.join(self.stored)}.")
        stack = where[0] if where else self.only_stack()
        sites = [site for site in self.sites if site.name == stack]
        if len(where) == 2:
            sites = [site for site in sites if str(site.layer + 1) == where[1]]
        if not sites or len(where) > 2:
            raise UserError(
                f"This pass of {self.subject.name!r} has no {name!r}.{near(name, self.names())} It has "
                f"{self.names()[0]}, …"
            )
        return sites, part

    def known_stack(self, stack: str | None) -> str:
        """The stack of this name; None is the only one."""
        if stack is None:
            return self.only_stack()
        check(stack, str, "stack")
        if stack not in self.stacks:
            raise UserError(
                f"{self.subject.name!r} has no stack {stack!r}.{near(stack, self.stacks)} It has "
                f"{', '.join(self.stacks)}."
            )
        return stack

    def only_stack(self) -> str:
        """The stack that is meant if none is named."""
        if len(self.stacks) > 1:
            raise UserError(f"{self.subject.name!r} has several stacks: choose one of {', '.join(self.stacks)}.")
        return self.stacks[0]
