-- Triples with hard negatives, from two tables: article (concept_id, language, split) and, with a row for each category
-- of an article, article_category (concept_id, language, split, category). Where a model found hard negatives, a third
-- table has them: neighbour (concept_id, language, negative_id).
--
-- draw(key) is an MD5 hash and every order is total, so the triples are the same whatever the number of threads.
--
-- A negative is drawn as uniformly as possible without a join of a category with itself: first a category of the
-- article that has another member in its language and split, then one of those members. A category over the limit is
-- drawn less often: the least draw wins, and the draw of such a category grows with its size.
WITH member AS (
    SELECT language, split, category, concept_id, member_index, size
    FROM (
        SELECT language, split, category, concept_id,
               row_number() OVER (PARTITION BY language, split, category ORDER BY concept_id) - 1 AS member_index,
               count(*) OVER (PARTITION BY language, split, category) AS size
        FROM (SELECT DISTINCT language, split, concept_id, category FROM article_category) AS distinct_member
    ) AS counted
    WHERE size > 1
),
-- Each pair of languages of a concept; which side is the anchor is drawn.
pair AS (
    SELECT concept_id, split,
           CASE WHEN side = 0 THEN one_language ELSE other_language END AS anchor_language,
           CASE WHEN side = 0 THEN other_language ELSE one_language END AS positive_language
    FROM (
        SELECT one.concept_id, one.split, one.language AS one_language, other.language AS other_language,
               draw(concat_ws('|', 'side', one.concept_id, one.language, other.language)) % 2 AS side
        FROM article AS one
        JOIN article AS other
          ON one.concept_id = other.concept_id AND one.split = other.split AND one.language < other.language
    ) AS languages
),
side AS (
    SELECT concept_id, split, anchor_language, positive_language, anchor_language AS language FROM pair
    UNION ALL
    SELECT concept_id, split, anchor_language, positive_language, positive_language AS language FROM pair
),
drawn AS (
    SELECT concept_id, anchor_language, positive_language, language, split, category,
           (member_index + 1 + draw(concat_ws('|', 'member', concept_id, anchor_language, positive_language, language))
                        % (size - 1)) % size AS negative_index
    FROM (
        SELECT side.concept_id, side.anchor_language, side.positive_language, side.language, side.split,
               member.category, member.member_index, member.size,
               row_number() OVER (
                   PARTITION BY side.concept_id, side.anchor_language, side.positive_language, side.language
                   ORDER BY CAST(draw(concat_ws('|', 'category', side.concept_id, side.anchor_language,
                                                side.positive_language, side.language, member.category)) AS DOUBLE)
                            * greatest(1e0, CAST(member.size AS DOUBLE) / {category_limit}),
                            member.category
               ) AS category_rank
        FROM side
        JOIN member
          ON member.concept_id = side.concept_id AND member.split = side.split AND member.language = side.language
    ) AS candidate
    WHERE category_rank = 1
),
-- Materialized, or the planner may join the articles of a language with each other first.
near AS MATERIALIZED (
    SELECT neighbour.concept_id, neighbour.language, neighbour.negative_id, article.split
    FROM neighbour
    JOIN article ON article.concept_id = neighbour.negative_id AND article.language = neighbour.language
),
negative AS (
    SELECT drawn.concept_id, drawn.anchor_language, drawn.positive_language, drawn.language, drawn.category,
           member.concept_id AS negative_id
    FROM drawn
    JOIN member
      ON member.language = drawn.language AND member.split = drawn.split AND member.category = drawn.category
     AND member.member_index = drawn.negative_index
    UNION ALL
    SELECT side.concept_id, side.anchor_language, side.positive_language, side.language, NULL AS category,
           min_by(near.negative_id, draw(concat_ws('|', 'neighbour', side.concept_id, side.anchor_language,
                                                   side.positive_language, side.language, near.negative_id)))
    FROM side
    JOIN near ON near.concept_id = side.concept_id AND near.language = side.language AND near.split = side.split
    GROUP BY ALL
)
SELECT pair.concept_id, pair.anchor_language, pair.positive_language, hard.category, hard.negative_id,
       hard_positive.negative_id AS positive_negative_id, pair.split
FROM pair
JOIN negative AS hard
  ON hard.concept_id = pair.concept_id AND hard.anchor_language = pair.anchor_language
 AND hard.positive_language = pair.positive_language AND hard.language = pair.anchor_language
LEFT JOIN negative AS hard_positive
  ON hard_positive.concept_id = pair.concept_id AND hard_positive.anchor_language = pair.anchor_language
 AND hard_positive.positive_language = pair.positive_language
 AND hard_positive.language = pair.positive_language
ORDER BY pair.split, pair.concept_id, pair.anchor_language, pair.positive_language
