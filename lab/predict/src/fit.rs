//! Parameters of a model that bring it nearest to what was measured: the method of Levenberg (1944)
//! and Marquardt (1963) on logarithms, so that each parameter stays above zero and a factor of two
//! is as far up as down.

use anyhow::Result;

/// Steps at most: each asks the model once for every parameter and some times more.
const STEPS_MAX: usize = 12;
/// A factor of `e^0.08` for the slopes: a model with queues is not smooth below that.
const SLOPE_STEP: f64 = 0.08;
/// The longest step of one parameter, as a logarithm: a factor of 2.7.
const STRIDE_MAX: f64 = 1.0;
/// Less than this part of the error gained: it is the end.
const GAIN_MIN: f64 = 0.002;

/// Finds the logarithms of parameters, beginning at `start`, for which the sum of the squares of
/// what `errors` gives is least.
///
/// # Errors
/// Those of `errors`.
pub fn least_squares(start: &[f64], mut errors: impl FnMut(&[f64]) -> Result<Vec<f64>>) -> Result<Vec<f64>> {
    let square = |errors: &[f64]| errors.iter().map(|error| error * error).sum::<f64>();
    let mut at = start.to_vec();
    let mut here = errors(&at)?;
    let mut damping = 0.1;
    for _ in 0..STEPS_MAX {
        let mut slopes = Vec::with_capacity(at.len());
        for number in 0..at.len() {
            let mut beside = at.clone();
            beside[number] += SLOPE_STEP;
            slopes.push(errors(&beside)?.iter().zip(&here).map(|(there, here)| (there - here) / SLOPE_STEP).collect::<Vec<f64>>());
        }
        let before = square(&here);
        let mut gained = false;
        while !gained && damping < 1e4 {
            let stride = step(&slopes, &here, damping);
            let next: Vec<f64> = at.iter().zip(&stride).map(|(at, by)| at + by.clamp(-STRIDE_MAX, STRIDE_MAX)).collect();
            let there = errors(&next)?;
            gained = square(&there) < before;
            if gained {
                (at, here) = (next, there);
                damping = (damping / 5.0_f64).max(1e-4);
            } else {
                damping *= 5.0;
            }
        }
        if before - square(&here) < GAIN_MIN * before {
            break;
        }
    }
    Ok(at)
}

/// The step that the slopes propose: the normal equations with a weight on their diagonal.
fn step(slopes: &[Vec<f64>], errors: &[f64], damping: f64) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut rows: Vec<Vec<f64>> = slopes
        .iter()
        .enumerate()
        .map(|(number, one)| {
            let mut row: Vec<f64> = slopes.iter().map(|other| dot(one, other)).collect();
            row[number] += damping * row[number].max(1e-6);
            row.push(-dot(one, errors));
            row
        })
        .collect();
    solve(&mut rows)
}

/// Gauss's elimination of a system whose rows end in their right sides. The diagonal of damped
/// normal equations is never 0.
fn solve(rows: &mut [Vec<f64>]) -> Vec<f64> {
    let size = rows.len();
    for pivot in 0..size {
        let best = (pivot..size).max_by(|a, b| rows[*a][pivot].abs().total_cmp(&rows[*b][pivot].abs())).expect("a row is left");
        rows.swap(pivot, best);
        let (above, below) = rows.split_at_mut(pivot + 1);
        let chosen = &above[pivot];
        for row in below {
            let factor = row[pivot] / chosen[pivot];
            row.iter_mut().zip(chosen).for_each(|(value, of)| *value -= factor * of);
        }
    }
    let mut found = vec![0.0; size];
    for number in (0..size).rev() {
        let known: f64 = (number + 1..size).map(|other| rows[number][other] * found[other]).sum();
        found[number] = (rows[number][size] - known) / rows[number][number];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_known_model_are_found_from_far_away() {
        // Times of requests whose first waits for two wake-ups: a sum of products, as in queues.
        let model = |at: &[f64]| {
            let [request, wake, copy] = [at[0].exp(), at[1].exp(), at[2].exp()];
            [2.0 * wake + request, request, request.max(copy * 64.0), request + copy * 1024.0].map(f64::ln)
        };
        let truth = [2.0_f64.ln(), 30.0_f64.ln(), 0.1_f64.ln()];
        let wanted = model(&truth);
        let errors = |at: &[f64]| Ok(model(at).iter().zip(&wanted).map(|(is, wanted)| is - wanted).collect());
        let found = least_squares(&[0.0, 0.0, 0.0], errors).expect("the model refuses nothing");
        for (found, truth) in found.iter().zip(&truth) {
            assert!((found - truth).abs() < 0.02, "{found} is not {truth}");
        }
    }

    #[test]
    fn what_nothing_depends_on_stays_where_it_was() {
        let found = least_squares(&[0.3, 0.7], |at| Ok(vec![at[0] - 1.0])).expect("nothing is refused");
        assert!((found[0] - 1.0).abs() < 0.01, "{found:?}");
        assert!((found[1] - 0.7).abs() < 1e-9, "{found:?}");
    }
}
