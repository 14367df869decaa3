"""How far apart directions can be: bounds on the largest cosine between C unit vectors in d dimensions."""

import math

from lorgnette.errors import UserError


def least_largest_cosine(vectors: int, dim: int) -> float:
    """A number that the largest of the cosines between C unit vectors in d dimensions cannot go below.

    −1/(C−1)     C ≤ d + 1   reached by a simplex
    0            C ≤ 2d      reached by ± the axes (Rankin 1955)
    beyond       the greater of two bounds, neither tight in general:
                 the s at which C = d(1−s)(2+(d+1)s)/(1−ds²) (Levenshtein 1979, third bound);
                 cos 2φ, since C caps of radius φ, half the smallest angle, do not overlap: C · area(φ) ≤ 1

    Cosines here have a sign. Welch's bound (`least_largest_absolute_cosine`) does not: in the plane five directions 72°
    apart have a largest cosine of .31, and Welch gives .61 for the largest |cos|.
    """
    _check(vectors, dim)
    if vectors <= dim + 1:
        return -1 / (vectors - 1)
    if vectors <= 2 * dim:
        return 0.0
    if dim == 1:
        return 1.0  # of three vectors on a line two are the same
    return max(_levenshtein(vectors, dim), math.cos(2 * cap_radius(1 / vectors, dim)))


def most_vectors(cosine: float, dim: int) -> float:
    """d(1−s)(2+(d+1)s)/(1−ds²): no more unit vectors have all their cosines at most s, 0 ≤ s ≤ (√(d+3)−1)/(d+2).

    Levenshtein's third bound: f(1)/f₀ of f(t) = (t−s)(t+b)², b = (1+s)/(1+ds), none of whose Gegenbauer coefficients is
    negative (Delsarte's linear programme).
    """
    return dim * (1 - cosine) * (2 + (dim + 1) * cosine) / (1 - dim * cosine**2)


def _levenshtein(vectors: int, dim: int) -> float:
    """The s at which so many vectors are the most; the end of its interval if there are more."""
    low, high = 0.0, (math.sqrt(dim + 3) - 1) / (dim + 2)
    if most_vectors(high, dim) <= vectors:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if most_vectors(middle, dim) < vectors else (low, middle)
    return low


def least_largest_absolute_cosine(vectors: int, dim: int) -> float:
    """√((C−d) / (d(C−1))) for C > d, else 0: no C lines in d dimensions have a smaller largest |cos| (Welch 1974)."""
    _check(vectors, dim)
    return math.sqrt((vectors - dim) / (dim * (vectors - 1))) if vectors > dim else 0.0


def cap_radius(share: float, dim: int) -> float:
    """The angle φ ≤ π/2 at which the cap of the unit sphere around a point has this share of the sphere's area.

    share = ½ I_{sin²φ}((d−1)/2, ½), I the regularised incomplete beta function.
    """
    if dim < 2 or not 0 < share <= 0.5:
        raise UserError(f"A cap needs at least two dimensions and a share in (0, ½]; got {dim} and {share}.")
    from scipy.special import betaincinv

    return math.asin(math.sqrt(float(betaincinv((dim - 1) / 2, 0.5, 2 * share))))


def _check(vectors: int, dim: int) -> None:
    if vectors < 2 or dim < 1:
        raise UserError(f"Cosines are between at least two vectors in at least one dimension; got {vectors} and {dim}.")
